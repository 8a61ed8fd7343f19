"""`ec_connector_extra_config`, read and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal
from urllib.parse import urlsplit

from mmcache.model.errors import SettingsError

AtRest = Literal["raw", "fp16", "int4"]
Uuids = Literal["verify", "trust"]


@dataclass(frozen=True)
class Options:
    """What a user says about the cache behind the connector. Raises `SettingsError`."""

    root: str | None = None
    """Folder that engines of this machine share, and that survives restarts."""
    shared: str | None = None
    """`valkey://…` that engines of several machines share; then `secret_env` is needed, or one `root` for all."""
    secret_env: str | None = None
    """Name of the environment variable that holds the 64 hex digits which salt all keys, the same on all machines."""
    tenant: str = "default"
    """Whose outputs these are. A request's `cache_salt` makes a tenant of its own below it."""
    at_rest: AtRest = "raw"
    """`raw` gives back every bit. `fp16` halves FP32 outputs and leaves 16-bit ones as they are; `int4` is lossy: each
    value is off by at most half a step, a fourteenth of the largest of its channel."""
    version: str | None = None
    """Names the weights, where their files cannot be read or should not be hashed."""
    uuids: Uuids = "verify"
    """`trust`: whoever sends a `uuid` for a picture never sends it for another. Then vLLM's processor cache may stay
    on, which believes them."""
    memory: int | str = "256MiB"
    disk: int | str = "10GiB"
    lookup_seconds: float = 0.5
    """Most that a request waits for the shared tier before its picture is encoded."""
    backlog_bytes: int = 512 << 20
    """Outputs waiting to be stored; beyond it, they are not."""
    otlp: str | None = None
    """Where spans and metrics of the cache are sent, `http://localhost:4318`."""
    sample: float = 0.01
    """Share of lookups that become spans; those of a request that is traced always do."""

    def __post_init__(self) -> None:
        if self.root is None and self.shared is None:
            raise SettingsError('say where outputs are kept: ec_connector_extra_config needs "root" or "shared"')
        if self.shared is not None and self.root is None and self.secret_env is None:
            raise SettingsError('"shared" needs "secret_env" (or a "root" with the same realm.key on every machine)')
        for name, choices in (("at_rest", ("raw", "fp16", "int4")), ("uuids", ("verify", "trust"))):
            if getattr(self, name) not in choices:
                raise SettingsError(f"{name} is one of {', '.join(choices)}, not {getattr(self, name)!r}")
        for name in ("root", "shared", "secret_env", "version", "tenant", "otlp"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise SettingsError(f"{name} is a text that is not empty, not {value!r}")
        if self.shared is not None and urlsplit(self.shared).password:
            raise SettingsError("vLLM logs its configuration: put the password into $MMCACHE_SHARED_PASSWORD instead")
        if isinstance(self.sample, bool) or not isinstance(self.sample, int | float) or not 0 <= self.sample <= 1:
            raise SettingsError(f"sample is a share from 0 to 1, not {self.sample!r}")
        seconds, backlog = self.lookup_seconds, self.backlog_bytes
        if not (isinstance(seconds, int | float) and math.isfinite(seconds) and 0 <= seconds <= 60):
            raise SettingsError(f"lookup_seconds is a number from 0 to 60, not {seconds!r}")
        if not (isinstance(backlog, int) and backlog > 0):
            raise SettingsError(f"backlog_bytes is a number of bytes above 0, not {backlog!r}")

    @staticmethod
    def of(extra: Mapping[str, Any]) -> Options:
        """From `ec_connector_extra_config`. A name that is not known is refused: it may have been meant to protect."""
        known = [field.name for field in fields(Options)]
        if unknown := sorted(set(extra) - set(known)):
            raise SettingsError(f"ec_connector_extra_config has no {', '.join(unknown)}; it takes {', '.join(known)}")
        return Options(**extra)
