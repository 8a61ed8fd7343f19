"""`CacheConfig`: which cache a component uses, in words that a pipeline file can hold; one open cache a description."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from haystack import default_from_dict, default_to_dict
from haystack.utils import Secret

from mmcache.cache import Cache
from mmcache.forks import Lock
from mmcache.model.errors import SettingsError
from mmcache.settings import parse_bytes

_PASSWORD = re.compile(r"//[^@]*:[^@]+@|[?&](auth|pass|password|token|secret)=", re.IGNORECASE)


@dataclass(frozen=True)
class CacheConfig:
    """The arguments of `Cache`, serialisable. Components of one process that describe one cache share it.

    >>> config = CacheConfig(root="cache", memory="512MiB")

    root: folder, shared by any number of processes; None = memory only. memory, disk, tenant, namespace: as for
    `Cache`.
    shared: address of the tier that hosts share; a `Secret` where it holds a password.
    secret: 64 hexadecimal digits that salt every key, as a `Secret`; default: a key file in `root`.
    Raises `SettingsError`.
    """

    root: str | None = None
    memory: str | int | None = None
    disk: str | int | None = "10GiB"
    shared: Any = None
    secret: Any = None
    tenant: str = "default"
    namespace: str = "default"

    def __post_init__(self) -> None:
        if self.root is not None:
            object.__setattr__(self, "root", str(self.root))  # a Path has no place in YAML
            if "\0" in self.root:
                raise SettingsError("root is the path of a folder, which holds no null byte")
        for size in (self.memory, self.disk):
            if size is not None:
                parse_bytes(size)
        for name in ("tenant", "namespace"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise SettingsError(f"{name} is a string that is not empty, not {getattr(self, name)!r}")
        if isinstance(self.shared, str) and _PASSWORD.search(self.shared):
            raise SettingsError("the address of the shared tier holds a password: pass it as Secret.from_env_var(…)")
        if self.secret is not None and not isinstance(self.secret, Secret):
            raise SettingsError(f"secret is a haystack.utils.Secret, not a {type(self.secret).__name__}")
        if self.shared is not None and not isinstance(self.shared, str | Secret):
            raise SettingsError(f"shared is an address or a Secret, not a {type(self.shared).__name__}")

    def to_dict(self) -> dict[str, Any]:
        """For pipeline files: a secret is named, never written."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        data: dict[str, Any] = default_to_dict(self, **told)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CacheConfig:
        """Opens nothing."""
        config: CacheConfig = default_from_dict(cls, data)
        return config

    def open(self) -> Lease:
        """The cache, opened by whoever asks first. Raises `SettingsError`, `TierError`."""
        return _open(self)


class Lease:
    """The right to use an open cache until `release`; the last one to go closes it."""

    def __init__(self, cache: Cache, place: object) -> None:
        self.cache = cache
        self._place: object | None = place

    def release(self) -> None:
        """Idempotent."""
        place, self._place = self._place, None
        if place is not None:
            _release(place)


@dataclass
class _Open:
    config: CacheConfig
    cache: Cache
    users: int = 0


_lock = Lock()
_caches: dict[object, _Open] = {}


def _open(config: CacheConfig) -> Lease:
    place: object = config if config.root is None else Path(config.root).expanduser().resolve()
    with _lock:
        found = _caches.get(place)
        if found is None:
            found = _caches[place] = _Open(config, _opened(config))
        elif _without_realm(found.config) != _without_realm(config):
            raise SettingsError(
                f"{config.root} is open in this process with other settings; describe one folder in one way"
            )
        found.users += 1
        return Lease(found.cache, place)


def _release(place: object) -> None:
    with _lock:
        found = _caches[place]
        found.users -= 1
        if not found.users:
            del _caches[place]
            found.cache.close()  # inside the lock: who opens the folder next finds it closed


def _opened(config: CacheConfig) -> Cache:
    shared = config.shared.resolve_value() if isinstance(config.shared, Secret) else config.shared
    return Cache(
        config.root, memory=config.memory, disk=config.disk, shared=shared, secret=_salt(config.secret),
        tenant=config.tenant, namespace=config.namespace,
    )  # fmt: skip


def _salt(secret: Any) -> bytes | None:
    if secret is None:
        return None
    try:
        salt = bytes.fromhex(str(secret.resolve_value()))
    except ValueError:
        salt = b""
    if len(salt) != 32:
        raise SettingsError("the secret is not 64 hexadecimal digits; make one with `openssl rand -hex 32`")
    return salt


def _without_realm(config: CacheConfig) -> tuple[Any, ...]:
    return config.memory, config.disk, config.shared, config.secret
