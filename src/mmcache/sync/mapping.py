"""The mapping file: which topics to read, and which columns of which tables blocks rest on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from mmcache.model.errors import SettingsError
from mmcache.rows import ANY
from mmcache.settings import SharedSettings, from_environment

HEARTBEATS = "__debezium-heartbeat"
"""How the topic of a connector's signs of life begins."""
OURS = ("bootstrap.servers", "group.id", "auto.offset.reset", "allow.auto.create.topics", "error_cb", "log_level")
"""Options of the Kafka client that follow from others, or that must be as they are. So is all about auto commits."""


class Secret(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A value that does not stand in the file: of an environment variable, or of a file."""

    env: str | None = None
    file: str | None = None

    def value(self) -> str:
        """Read it. Raises `SettingsError`."""
        if (self.env is None) == (self.file is None):
            raise SettingsError("a secret is {env: NAME} or {file: PATH}")
        if self.env is not None:
            return from_environment(self.env)
        assert self.file is not None
        try:
            return Path(self.file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"cannot read the secret in {self.file}: {error}") from error


class Kafka(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The broker and what to read of it."""

    bootstrap: str
    topics: tuple[str, ...]
    """Names; one that begins with ^ is a regular expression."""
    group: str = "mmcache"
    """Positions are kept under this name, on the shared tier and at the broker."""
    share: bool = False
    """Whether the runners of a group share the partitions, as a consumer group. Else each reads all of them: it waits
    for nobody when it starts, and two stand in for one another, since what is done twice is done once."""
    start: Literal["end", "beginning"] = "end"
    """Where to go on where it is not known what was missed, after all tables of the topic have been moved."""
    options: dict[str, str | int | float | bool | Secret] = {}
    """Of the Kafka client, as librdkafka calls them."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table."""

    key: tuple[str, ...]
    """The columns that name a row, in the order in which `Row` gives them."""
    name: str | None = None
    """What `Row` calls it; None = the table's own name, without its schema."""
    groups: dict[str, tuple[str, ...]] = {}
    """Columns that belong together, a modality say. A column may be in several."""
    topics: tuple[str, ...] = ()
    """Those that may carry it, where the connector renames topics; else those that end in the table's name."""
    old_rows: bool = True
    """Whether events bring the row as it was before, whole or not at all (REPLICA IDENTITY FULL or DEFAULT; binlog row
    images FULL). With USING INDEX or MINIMAL images say false: then every update moves the whole row."""
    refresh: str | None = None
    """`module:function`, called with the `RowChange` once its editions have moved."""


class Resnapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to ask the connector to read tables again, after a broker has lost its log."""

    topic: str | None = None
    """Its `signal.kafka.topic`; `server` is its `topic.prefix`."""
    server: str | None = None
    command: tuple[str, ...] = ()
    """Run with the names of the tables behind it."""


class SyncConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All of the file."""

    kafka: Kafka
    shared: str | dict[str, Any]
    """The URL of the shared tier, or the fields of `SharedSettings`."""
    secret_file: str
    """The caches' secret: `realm.key` of one of their folders."""
    tables: dict[str, Table]
    replicas: int = 0
    """So many replicas must have a change before it counts as applied."""
    on_poison: Literal["move", "skip"] = "move"
    """Whether a message that cannot be understood moves all that it may be about."""
    stale_after: float | None = None
    """Seconds: while the broker, or the connector's heartbeat, is silent for longer, all tables move so often. None =
    what changes meanwhile is served until they are heard again."""
    resnapshot: Resnapshot | None = None

    @property
    def settings(self) -> SharedSettings:
        """Of the shared tier. Raises `SettingsError`."""
        if isinstance(self.shared, str):
            return SharedSettings(self.shared)
        try:
            return SharedSettings(**self.shared)
        except TypeError as error:
            raise SettingsError(f"`shared` is a URL, or fields of SharedSettings: {error}") from error


def read(path: Path) -> SyncConfig:
    """Read the mapping. Raises `SettingsError` that says what is wrong, and where."""
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the mapping {path}: {error}") from error
    try:
        found = msgspec.convert(_plain(text, str(path)), SyncConfig, strict=True)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{path}: {error}") from error
    try:
        return _checked(found)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error


def _plain(text: str, path: str) -> Any:
    """YAML as plain data. What stands twice is refused: the later one would silently win."""
    try:
        import yaml
    except ImportError as error:
        raise SettingsError("a mapping is YAML, which needs pyyaml: pip install 'mmcache[sync]'") from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_twice(root, yaml, path)
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:  # without the line itself, which may hold a password
        place = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise SettingsError(f"{path}{place} is no YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise SettingsError(f"{path} is no YAML: {error}") from error


def _refuse_twice(root: Any, yaml: Any, path: str) -> None:
    nodes, seen = [root], set()
    while nodes:
        node = nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            names: set[str] = set()
            for name, value in node.value:
                if isinstance(name, yaml.ScalarNode):
                    if name.value in names:
                        raise SettingsError(f"{path}, line {name.start_mark.line + 1}: {name.value} stands there twice")
                    names.add(name.value)
                nodes += (name, value)


def _checked(found: SyncConfig) -> SyncConfig:
    kafka = found.kafka
    if not kafka.bootstrap or not kafka.topics or not kafka.group:
        raise SettingsError("kafka: bootstrap, topics and group must say something")
    for topic in kafka.topics:
        try:
            _ = re.compile(topic) if topic.startswith("^") else None
        except re.error as error:
            raise SettingsError(f"kafka: topics: {topic} is no regular expression: {error}") from error
    for option in kafka.options:
        if option in OURS or option.startswith(("enable.auto", "auto.commit")):
            raise SettingsError(f"kafka: options: {option} is set by mmcache, or by the fields beside `options`")
    if found.replicas < 0:
        raise SettingsError(f"replicas is 0 or more, not {found.replicas}")
    if found.stale_after is not None and not found.stale_after > 0:
        raise SettingsError(f"stale_after is a number of seconds above 0, not {found.stale_after}")
    if not found.tables:
        raise SettingsError("tables: name at least one")
    _ = found.settings
    if found.resnapshot is not None:
        one = found.resnapshot
        if bool(one.command) == bool(one.topic) or (one.topic is None) != (one.server is None):
            raise SettingsError("resnapshot is either {command: […]} or {topic: …, server: …}")
    tables: dict[str, Table] = {}
    for name, table in found.tables.items():
        tables[name] = _table(name, table)
        if [one.name for one in tables.values()].count(tables[name].name) > 1:
            raise SettingsError(f"tables: two are called {tables[name].name}; give one of them another `name`")
    if all(not topic.startswith("^") for topic in kafka.topics):
        for name in sorted(set(tables).difference(*(tables_of(topic, tables) for topic in kafka.topics))):
            raise SettingsError(
                f"tables: {name}: no topic of kafka.topics carries it; add the one that ends in {_suffix(name)}, or "
                "say in its `topics` which one does"
            )
    return msgspec.structs.replace(found, tables=tables)


def _table(name: str, table: Table) -> Table:
    if not name or not table.key or not all(table.key):
        raise SettingsError(f"tables: {name}: key names the columns of its primary key")
    if "." not in name:
        raise SettingsError(f"tables: {name}: name it with its schema or database, as public.{name}")
    for group, columns in table.groups.items():
        if not group or group == ANY or not columns:
            raise SettingsError(f"tables: {name}: a group has a name, other than {ANY!r}, and columns; not {group!r}")
    if table.refresh is not None and not all(table.refresh.partition(":")):
        raise SettingsError(f"tables: {name}: refresh is package.module:function, not {table.refresh!r}")
    called = name.rsplit(".", 1)[-1] if table.name is None else table.name
    if not called:
        raise SettingsError(f"tables: {name}: its name is empty")
    return msgspec.structs.replace(table, name=called)


def tables_of(topic: str, tables: Mapping[str, Table]) -> tuple[str, ...]:
    """Which mapped tables a topic may carry: by its name, else any; heartbeats are about none."""
    if topic.startswith(HEARTBEATS):
        return ()
    stated = [name for name, table in tables.items() if topic in table.topics]
    ending = [name for name, table in tables.items() if not table.topics and f".{topic}".endswith(_suffix(name))]
    if stated or ending:
        return tuple(dict.fromkeys((*stated, *ending)))
    return tuple(tables)


def _suffix(table: str) -> str:
    """How the topic of a table ends: what a topic's name may not have is "_" there."""
    return "." + re.sub(r"[^A-Za-z0-9._-]", "_", table)
