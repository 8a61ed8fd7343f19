"""One cache a process: scheduler and worker may be the same process, or two, and each asks for it."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from mmcache.attribution import attributed
from mmcache.cache import Cache
from mmcache.integrations.vllm.options import Options
from mmcache.model.errors import SettingsError
from mmcache.settings import from_environment
from mmcache.telemetry import Telemetry, instrument

NAMESPACE = "vllm-encoder"

ROUTE = "vllm"
"""What lookups count for."""

_open: dict[Options, tuple[Cache, int]] = {}
_watching: dict[Options, Telemetry] = {}
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
            if options.otlp is not None:
                try:
                    _watching[options] = instrument(cache, otlp=options.otlp, sample=options.sample)
                except SettingsError:
                    cache.close()
                    raise
        _open[options] = cache, users + 1
        return cache


def release(options: Options) -> None:
    """Closed when nobody uses it any more: what is pending is written."""
    with _lock:
        cache, users = _open.pop(options, (None, 0))
        if cache is not None and users > 1:
            _open[options] = cache, users - 1
            return
        watch = _watching.pop(options, None)
    if watch is not None:
        watch.close()
    if cache is not None:
        cache.close()


@contextmanager
def asked_by(trace: tuple[str, str], options: Options) -> Iterator[None]:
    """Inside, lookups and writes count for vLLM, and belong to this trace where somebody is told of them."""
    with ExitStack() as inside:
        inside.enter_context(attributed(route=ROUTE))
        if trace[0] and options in _watching:
            from mmcache.telemetry.requests import child_of

            inside.enter_context(child_of(*trace))
        yield


def trace_of(request: Any) -> tuple[str, str]:
    """`traceparent` and `tracestate` of an engine's request: vLLM has them where it traces by itself."""
    headers = getattr(request, "trace_headers", None) or {}
    parent, state = headers.get("traceparent"), headers.get("tracestate")
    return (parent, state if isinstance(state, str) else "") if isinstance(parent, str) else ("", "")


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
