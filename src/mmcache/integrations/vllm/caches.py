"""One cache a process: scheduler and worker may be the same process, or two, and each asks for it."""

from __future__ import annotations

import atexit
import threading

from mmcache.cache import Cache
from mmcache.integrations.vllm.options import Options
from mmcache.model.errors import SettingsError
from mmcache.settings import from_environment

NAMESPACE = "vllm-encoder"

_open: dict[Options, tuple[Cache, int]] = {}
_lock = threading.Lock()


def acquire(options: Options) -> Cache:
    """The cache of these options; `release` it. Raises `SettingsError`, `TierError`."""
    with _lock:
        cache, users = _open.get(options, (None, 0))
        if cache is None:
            cache = Cache(
                options.root, memory=options.memory, disk=options.disk, shared=options.shared,
                codec=options.at_rest, tenant=options.tenant, namespace=NAMESPACE, secret=_secret(options),
            )  # fmt: skip
        _open[options] = cache, users + 1
        return cache


def release(options: Options) -> None:
    """Closed when nobody uses it any more: what is pending is written."""
    with _lock:
        cache, users = _open.pop(options, (None, 0))
        if cache is not None and users > 1:
            _open[options] = cache, users - 1
            return
    if cache is not None:
        cache.close()


@atexit.register
def _close_all() -> None:
    """An engine that is dropped rather than shut down still writes what it has."""
    while _open:
        release(next(iter(_open)))


def _secret(options: Options) -> bytes | None:
    if options.secret_env is None:
        return None
    try:
        return bytes.fromhex(from_environment(options.secret_env))
    except ValueError as error:
        raise SettingsError(f"{options.secret_env} must hold 64 hex digits") from error
