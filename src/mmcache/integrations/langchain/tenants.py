"""`from_config`: the tenant of a call, read from the `RunnableConfig` that it runs with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langchain_core.runnables.config import var_child_runnable_config

_asked: ContextVar[Any] = ContextVar("mmcache_langchain_config", default=None)


def from_config(name: str = "tenant") -> Callable[[], str | None]:
    """For `tenant=`: what stands in `config["configurable"][name]` of the call.

    Seen inside chains, graphs and retrievers. Where a model is called by itself, LangChain does not tell its cache the
    configuration; nobody can say then whose call it is, so nothing is looked up or stored.
    """

    def tell() -> str | None:
        config = _asked.get() or var_child_runnable_config.get() or {}
        found = (config.get("configurable") or {}).get(name)
        return found if isinstance(found, str) else None

    return tell


@contextmanager
def asked_with(config: Any) -> Iterator[None]:
    """Inside, `from_config` reads this configuration."""
    token = _asked.set(config)
    try:
        yield
    finally:
        _asked.reset(token)
