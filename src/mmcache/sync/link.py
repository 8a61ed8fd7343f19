"""The shared tier, as a runner uses it: it moves editions there, and keeps what it must not forget."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from mmcache.keys.realm import load_secret
from mmcache.model.clock import Clock, SystemClock
from mmcache.model.errors import SettingsError, TierError
from mmcache.rows import RowIds
from mmcache.settings import SharedSettings
from mmcache.sync.mapping import SyncConfig
from mmcache.tiers.valkey.client import Client, Down, Refusal, Request, Script
from mmcache.tiers.valkey.editions import Change, Publisher
from mmcache.tiers.valkey.realm import Asks, same_secret

_Kind = TypeVar("_Kind")


class Applies(Protocol):
    """What is needed of a `Publisher`."""

    def apply(self, changes: Sequence[Change]) -> None:
        """See `Publisher.apply`."""


class Keeper:
    """What is kept under `prefix{sync}:`, in one slot."""

    def __init__(self, client: Asks, prefix: str) -> None:
        self._client, self._prefix = client, prefix.encode() + b"{sync}:"

    def key(self, name: str) -> bytes:
        """The server's key."""
        return self._prefix + name.encode()

    def ask(self, name: str, command: str, *words: str | bytes | int) -> Any:
        """One command about the key called `name`. Raises `TierError`."""
        key = self.key(name)
        return self._asked(Request(key, (command, key, *words)))

    def run(self, name: str, script: Script, *arguments: str | bytes | int) -> Any:
        """A script about it. Raises `TierError`."""
        key = self.key(name)
        return self._asked(Request(key, script.words([key], arguments)))

    def _asked(self, request: Request) -> Any:
        (reply,) = self._client.ask([request])
        if isinstance(reply, Refusal | Down):
            raise TierError(f"the shared tier does not serve: {reply}")
        return reply

    def hash(self, name: str) -> Hash:
        """The hash called `name`."""
        return Hash(self, name)


class Hash:
    """A hash of texts to bytes."""

    def __init__(self, keeper: Keeper, name: str) -> None:
        self._keeper, self._name = keeper, name

    def all(self) -> dict[str, bytes]:
        """All of it. Raises `TierError`."""
        return paired(self._keeper.ask(self._name, "HGETALL"))

    def read(self, kind: type[_Kind]) -> dict[str, _Kind]:
        """All that is JSON of a kind; what is not is left out. Raises `TierError`."""
        found = {}
        for field, raw in self.all().items():
            try:
                found[field] = msgspec.json.decode(raw, type=kind)
            except msgspec.MsgspecError:
                continue
        return found

    def put(self, fields: Mapping[str, bytes]) -> None:
        """Set these fields. Raises `TierError`."""
        if fields:
            self._keeper.ask(self._name, "HSET", *(word for pair in fields.items() for word in pair))

    def drop(self, fields: Sequence[str]) -> None:
        """Remove these fields. Raises `TierError`."""
        if fields:
            self._keeper.ask(self._name, "HDEL", *fields)


def paired(reply: Any) -> dict[str, bytes]:
    """Fields and values, as they come one after the other. Raises `TierError`."""
    if not isinstance(reply, list | tuple) or len(reply) % 2:
        raise TierError(f"fields cannot be read: {reply!r:.60}")
    return {
        bytes(name).decode("utf-8", "replace"): bytes(value)
        for name, value in zip(reply[::2], reply[1::2], strict=True)
    }


@dataclass(frozen=True)
class Link:
    """All of it."""

    publisher: Applies
    keeper: Keeper
    ids: RowIds
    follow: Callable[[Mapping[str, Collection[str]]], None] = lambda tables: None
    """Tells the caches that these tables (what rows call them → their groups) are followed. Raises `TierError`."""
    check: Callable[[], None] = lambda: None
    """Raises `SettingsError` where the caches have another secret, `TierError` while the shared tier does not serve."""


def keeper_of(settings: SharedSettings, *, clock: Clock | None = None) -> tuple[Client, Keeper]:
    """Open the shared tier, for looking. Raises `SettingsError`."""
    client = Client(settings, clock=clock or SystemClock())
    return client, Keeper(client, client.address.prefix)


def open_link(config: SyncConfig, *, clock: Clock | None = None) -> tuple[Client, Link]:
    """Open the shared tier, for moving editions. Raises `SettingsError`."""
    path = Path(config.secret_file).expanduser()
    if not path.is_file():  # a new one would be another one
        raise SettingsError(f"there is no secret_file {path}; copy realm.key out of the folder of a cache that shares")
    secret = load_secret(path)
    client, keeper = keeper_of(config.settings, clock=clock)
    check = partial(_require_same_secret, client, client.address.prefix, secret)
    # half of the client's patience: it takes who does not answer in time for dead
    publisher = Publisher(client, replicas=config.replicas, wait_seconds=config.settings.timeout_seconds / 2)
    return client, Link(publisher, keeper, RowIds(secret), publisher.follow, check)


def _require_same_secret(client: Asks, prefix: str, secret: bytes) -> None:
    """Sources named by another secret are nobody's: nothing would ever be invalidated."""
    same = same_secret(client, prefix, secret)
    if isinstance(same, Refusal | Down):
        raise TierError(f"the shared tier does not serve: {same}")
    if not same:
        raise SettingsError(
            f"secret_file is not the secret of the caches under the prefix {prefix!r}: nothing would be invalidated. "
            "Copy realm.key out of the folder of one of them"
        )
