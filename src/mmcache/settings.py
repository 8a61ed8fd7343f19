"""Every knob, with its unit. The only reader of the environment. (`config_file` reads them from TOML.)"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from mmcache.model.errors import SettingsError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_bytes(size: int | str) -> int:
    """`"2GiB"`, `"500MB"` or a number, in bytes. Raises `SettingsError`."""
    if isinstance(size, int) and not isinstance(size, bool):
        if size < 0:
            raise SettingsError(f"a size cannot be negative: {size}")
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(size))
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise SettingsError(f'not a size: {size!r}; write a number of bytes or "2GiB", "500MB"')
    try:
        return int(float(match[1]) * unit)
    except OverflowError as error:  # hundreds of digits
        raise SettingsError(f"no size is so large: {match[1][:20]}…") from error


def parse_ttl(ttl: float | None) -> float | None:
    """Seconds to live, 0 or more; None = the cache's lifetime decides. Raises `SettingsError`, before any computing."""
    if ttl is None or (isinstance(ttl, int | float) and not isinstance(ttl, bool) and ttl >= 0):
        return ttl
    raise SettingsError(f"ttl is a number of seconds, 0 or more, or None, not {ttl!r}")


def default_root() -> Path:
    """`$MMCACHE_ROOT`, else `$XDG_CACHE_HOME/mmcache`, else `~/.cache/mmcache`."""
    if root := os.environ.get("MMCACHE_ROOT"):
        return Path(root).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mmcache"


def lab_folder() -> Path:
    """What the laboratory builds once and keeps: `$XDG_CACHE_HOME/mmcache-lab`, else `~/.cache/mmcache-lab`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mmcache-lab"


def traces_folder() -> Path:
    """Where the laboratory looks for published traces: `$MMCACHE_TRACES`, else `../shared/data/traces`."""
    return Path(os.environ.get("MMCACHE_TRACES") or "../shared/data/traces").expanduser()


def accelerated() -> bool:
    """Whether the compiled kernels may be used (`MMCACHE_PURE=1` turns them off)."""
    return os.environ.get("MMCACHE_PURE", "") not in ("1", "true")


def enabled() -> bool:
    """The kill switch: `MMCACHE_DISABLED=1` makes every lookup a bypass."""
    return os.environ.get("MMCACHE_DISABLED", "") not in ("1", "true")


def from_environment(name: str) -> str:
    """A secret that a configuration names instead of holding it. Raises `SettingsError` where it is not set."""
    value = os.environ.get(name)
    if value is None:
        raise SettingsError(f"the environment has no {name}, which the configuration asks for")
    return value


Class = Literal["critical", "normal", "batch"]
"""Service class of a tenant."""

CLASS_WEIGHTS: dict[Class, float] = {"critical": 10.0, "normal": 3.0, "batch": 0.5}


@dataclass(frozen=True)
class Tenant:
    """What a tenant may expect: `Tenant("critical", quota="4GiB")`. A tenant that nobody named is `Tenant()`.

    service: `critical`, `normal` or `batch`. quota: most bytes it may hold in a tier; None = the tier's limit.
    Raises `SettingsError`.
    """

    service: Class = "normal"
    quota: int | str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.service, str) or self.service not in CLASS_WEIGHTS:
            raise SettingsError(f"a tenant is one of {', '.join(CLASS_WEIGHTS)}, not {self.service!r}")
        _ = self.quota_bytes

    @property
    def weight(self) -> float:
        """How much the class counts."""
        return CLASS_WEIGHTS[self.service]

    @property
    def quota_bytes(self) -> int | None:
        """The quota in bytes."""
        return None if self.quota is None else parse_bytes(self.quota)


@dataclass(frozen=True)
class MemorySettings:
    """The memory tier."""

    limit_bytes: int = 1 << 30
    largest_share: float = 0.5
    """A block larger than this share of the limit is refused: two large arrays must not evict everything."""
    pinned_share: float = 0.5
    """At most this share may be pinned."""
    recency_ring: int = 4096
    """Hits remembered between two maintenance passes; more than that lose recency, never counts."""


@dataclass(frozen=True)
class DiskSettings:
    """The local disk tier."""

    limit_bytes: int = 10 << 30
    segment_bytes: int = 64 << 20
    """Segment files are cut at this size; eviction unlinks whole segments."""
    index_map_bytes: int = 1 << 30
    """First size of the LMDB map (sparse); it doubles when it fills."""
    free_space_floor: int = 256 << 20
    """Puts are refused rather than leave the file system less free than this many bytes."""
    sync_every_bytes: int = 64 << 20
    """Written bytes after which a batch is fsynced without being asked."""
    backlog_bytes: int = 256 << 20
    """Frames waiting to be written behind; beyond it, puts to disk are refused and counted."""


@dataclass(frozen=True)
class SharedSettings:
    """The shared tier: a Valkey or Redis server, one found through sentinels, or a cluster. Raises `SettingsError`."""

    url: str = field(repr=False)
    """`valkey://host:6379`, also `redis://`; `valkeys://` or `rediss://` with TLS; `?cluster=true`;
    `valkey+sentinel://one:26379,two:26379/mymaster`. A user, a password and a database may stand in it."""
    password: str | None = field(default=None, repr=False)
    """Where the URL has none; None = `$MMCACHE_SHARED_PASSWORD`."""
    prefix: str = "mmcache:"
    """Of every key: what an ACL limits a tenant's processes to. Caches of one prefix share, others never meet."""
    timeout_seconds: float = 0.5
    """Most that one slow or dead node may cost a lookup, once; then it is left alone until it heals."""
    connections: int = 16
    """Most, to each node."""
    chunk_bytes: int = 512 << 10
    """A larger block is kept in pieces of this size, so that no command holds a node up for long."""
    largest_bytes: int = 64 << 20
    """A larger block is refused, and not read."""
    replica_reads: bool = False
    """Blocks may be read from replicas, which may lag: never what says whether they are still valid."""
    rest_seconds: float = 1.0
    """How long a node that failed is left alone at first; doubles up to 16 times that."""
    lease_seconds: float = 1.0
    """A leader that computes for all hosts renews its lease; after so long without, another takes over."""
    news_lease_seconds: float = 1.5
    """A process that has heard nothing from the invalidation stream for so long stops serving what rests on rows."""
    backlog_bytes: int = 256 << 20
    """Frames waiting to be written behind; beyond it, puts to the shared tier are refused and counted."""
    spare_seconds: float = 600.0
    """The server collects what is over so long after its deadline: its clock may be wrong by that much."""
    tls_ca: str | None = None
    """PEM file of the authorities that may vouch for a server; None = the system's."""
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_name: str | None = None
    """The name that stands in every server's certificate, where that is not its address: pods of a cluster have one
    certificate, and each an address of its own. None = the address."""

    def __post_init__(self) -> None:
        for name in ("timeout_seconds", "connections", "chunk_bytes", "largest_bytes", "rest_seconds", "lease_seconds",
                     "news_lease_seconds", "backlog_bytes"):  # fmt: skip
            value = getattr(self, name)
            whole = not name.endswith("_seconds")
            if not (isinstance(value, int if whole else int | float) and 0 < value <= (2**62 if whole else 1e6)):
                kind = "a whole number above 0" if whole else "a number above 0, up to a million"
                raise SettingsError(f"shared: {name} is {kind}, not {value!r}")
        if not (isinstance(self.spare_seconds, int | float) and 0 <= self.spare_seconds <= 1e9):
            raise SettingsError(f"shared: spare_seconds is a number from 0 to a billion, not {self.spare_seconds!r}")
        if not isinstance(self.prefix, str) or set("{}") & set(self.prefix):
            raise SettingsError(f"shared: a prefix has no braces, they would choose the slot: {self.prefix!r}")

    @property
    def known_password(self) -> str | None:
        """The password given, or of the environment."""
        return self.password if self.password is not None else os.environ.get("MMCACHE_SHARED_PASSWORD")


@dataclass(frozen=True)
class TelemetrySettings:
    """What `telemetry.instrument` sends, where, and how much. Raises `SettingsError`."""

    otlp: str | None = None
    """Base address of an OTLP/HTTP receiver, `http://localhost:4318`; `/v1/traces` and `/v1/metrics` are added."""
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    """Sent with each request, for a receiver that asks who tells."""
    sample: float = 0.01
    """Share of lookups that become spans, 0…1; what a recorded request asks for always does."""
    spans_per_second: float = 500.0
    """Most, of this process."""
    service: str = ""
    """`service.name`; "" = what the environment says to OpenTelemetry, else `mmcache`."""
    instance: str = ""
    """`service.instance.id`, another one for each process; "" = host and process."""
    region: str = ""
    """Where this process runs, as `cloud.region`."""
    interval: float = 10.0
    """Seconds between two reports of metrics."""
    timeout_seconds: float = 5.0
    """For one request to the receiver, and for what is left at the end."""

    def __post_init__(self) -> None:
        for name in ("service", "instance", "region"):
            if not isinstance(getattr(self, name), str):
                raise SettingsError(f"telemetry: {name} is a text, not {getattr(self, name)!r}")
        for name, least, most in (
            ("sample", 0, 1), ("spans_per_second", 0, 1e9), ("interval", 0.1, 86400), ("timeout_seconds", 0.1, 600),
        ):  # fmt: skip
            value = getattr(self, name)
            if isinstance(value, bool) or not (isinstance(value, int | float) and least <= value <= most):
                raise SettingsError(f"telemetry: {name} is a number from {least} to {most:g}, not {value!r}")
        if self.otlp is not None:
            _check_address(self.otlp)
        for name, value in (self.headers or {}).items():
            if not (isinstance(name, str) and isinstance(value, str) and f"{name}{value}".isprintable() and name):
                raise SettingsError(f"telemetry: a header is a name and a value in printable characters: {name!r:.60}")

    @staticmethod
    def from_environment(**given: Any) -> TelemetrySettings:
        """`$MMCACHE_OTLP` and `$MMCACHE_TRACE_SAMPLE`, where nothing else is given. Raises `SettingsError`."""
        otlp, sample = os.environ.get("MMCACHE_OTLP"), os.environ.get("MMCACHE_TRACE_SAMPLE")
        found: dict[str, Any] = {"otlp": otlp} if otlp else {}
        if sample:
            try:
                found["sample"] = float(sample)
            except ValueError:
                raise SettingsError(f"MMCACHE_TRACE_SAMPLE is a share from 0 to 1, not {sample!r}") from None
        return TelemetrySettings(**found | {name: value for name, value in given.items() if value is not None})


def _check_address(address: str) -> None:
    hint = 'telemetry: otlp is the base address of a receiver, like "http://localhost:4318"'
    try:
        parts = urlsplit(address)
        known = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except (ValueError, AttributeError, TypeError) as error:
        raise SettingsError(f"{hint}: {error}") from error
    if parts.username or parts.password:
        raise SettingsError(f"{hint}; what proves who tells goes into headers, not into the address")
    if not known or parts.query or parts.fragment or any(c.isspace() for c in address):
        raise SettingsError(f"{hint}, not {address!r}")
    if parts.path.rstrip("/").endswith(("/v1/traces", "/v1/metrics")):
        raise SettingsError(f"{hint}; its paths are added to it: leave {parts.path!r} away")


@dataclass(frozen=True)
class FlightSettings:
    """Single flight."""

    poll_seconds: float = 0.005
    """How often a follower looks whether another process's leader is done (grows to 20 times that)."""
    patience_seconds: float = 300.0
    """A follower that has waited this long computes by itself."""


@dataclass(frozen=True)
class SlotSettings:
    """Compute slots, where a number is not enough."""

    count: int
    """Slots."""
    batch_nice: int = 0
    """Niceness (0…19) of the threads that compute for batch tenants, while they do: 10 lets others go first wherever
    cores are short. Linux only, and only where threads may be raised again; read `niceness` before."""


@dataclass(frozen=True)
class DashboardSettings:
    """The dashboard: what it listens at, keeps and refuses. Raises `SettingsError`."""

    store: str = ":memory:"
    """A DuckDB file, or `:memory:`."""
    limit_bytes: int = 2 << 30
    """Of the store; beyond it, what is oldest goes."""
    gpu_hour: float | None = None
    """What an hour of computing costs, in `currency`; None = no costs are shown."""
    currency: str = "USD"
    admin_token: str | None = field(default=None, repr=False)
    """Without one, nobody may change anything."""
    ingest_token: str | None = field(default=None, repr=False)
    """What senders must show; None = anybody who reaches the port may send."""
    body_bytes: int = 8 << 20
    """Most that a sender may send at once, compressed or not."""
    inflated_bytes: int = 32 << 20
    """Most that it may inflate to."""
    queue_spans: int = 100_000
    """Spans that wait to be written; beyond it, senders are told to come again."""
    query_seconds: float = 5.0
    """Most that one question to the store may take."""
    readers: int = 4
    """Questions answered at the same time."""
    kept_days: float = 31.0
    """Older spans are refused."""

    def __post_init__(self) -> None:
        for name in (
            "limit_bytes",
            "body_bytes",
            "inflated_bytes",
            "queue_spans",
            "query_seconds",
            "readers",
            "kept_days",
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**62:
                raise SettingsError(f"dashboard: {name} is a number above 0, not {value!r}")
        if self.limit_bytes < 32 << 20:
            raise SettingsError(f"dashboard: a store of {self.limit_bytes} bytes holds nothing; give it 32MiB or more")
        if self.gpu_hour is not None and not 0 <= self.gpu_hour < 1e9:
            raise SettingsError(f"dashboard: gpu_hour is the price of an hour, 0 or more, not {self.gpu_hour!r}")
        for token in (self.admin_token, self.ingest_token):
            if token is not None and not (8 <= len(token) <= 512 and token.isascii() and token.isprintable()):
                raise SettingsError("dashboard: a token is 8 to 512 printable ASCII characters")


def dashboard_token() -> str | None:
    """`$MMCACHE_DASHBOARD_TOKEN`: what allows to change the dashboard's store."""
    return os.environ.get("MMCACHE_DASHBOARD_TOKEN") or None


def default_traces() -> Path:
    """Where the dashboard keeps spans: `$XDG_STATE_HOME/mmcache/traces.duckdb`, else below `~/.local/state`."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "mmcache" / "traces.duckdb"


@dataclass(frozen=True)
class Settings:
    """All of them."""

    memory: MemorySettings = field(default_factory=MemorySettings)
    disk: DiskSettings = field(default_factory=DiskSettings)
    flight: FlightSettings = field(default_factory=FlightSettings)
    compute_slots: int | SlotSettings | None = None
    """At most so many computations of a cache at a time, ranked by its admission (`qos`); None = no limit."""
    early_refresh: float = 1.0
    """How eagerly a block with a deadline is computed anew before it ends, by one caller: beta of XFetch, in which the
    chance grows with the seconds that computing takes. 0 = never before the end."""
