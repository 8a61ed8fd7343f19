"""LangChain's `ChatOpenAI` with a cache: its own in memory or SQLite, or ours behind `set_llm_cache`."""

from __future__ import annotations

import json
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from mmcache.lab.gateways.answering import texts
from mmcache.lab.gateways.said import Said, number_of
from mmcache.lab.peers_semantic import need


class LangChain:
    """`memory`, `sqlite`, or `mmcache`: our door, told the tenant of each call."""

    def __init__(self, upstream: str, kind: str, folder: Path) -> None:
        need("langchain_openai", *(("langchain_community",) if kind == "sqlite" else ()))
        from langchain_core.globals import set_llm_cache

        folder.mkdir(parents=True, exist_ok=True)
        self._address, self._models, self._ours = f"{upstream}/v1", dict[Any, Any](), None
        self._tenant: ContextVar[str | None] = ContextVar("tenant", default=None)
        if kind == "mmcache":
            from mmcache import Cache
            from mmcache.integrations.langchain import MMCache

            self._ours = Cache(folder)
            set_llm_cache(MMCache(self._ours, tenant=self._tenant.get))
        elif kind == "sqlite":
            from langchain_community.cache import SQLiteCache

            set_llm_cache(SQLiteCache(database_path=str(folder / "langchain.db")))
        else:
            from langchain_core.caches import InMemoryCache

            set_llm_cache(InMemoryCache())

    def ask(self, body: dict[str, Any], key: str, *, cached: bool) -> Said:
        """By `generate`, which gives all choices, or `stream`, for which LangChain asks no cache."""
        model = self._model(body["model"], key, cached)
        given = {name: value for name, value in body.items() if name not in ("model", "messages", "stream")}
        stop = given.pop("stop", None)
        self._tenant.set(key.removeprefix("sk-"))
        messages = [_message(message) for message in body["messages"]]
        if body.get("stream"):
            given.pop("stream_options")
            parts = list(model.stream(messages, stop=stop, stream_usage=True, **given))
            return Said((_told(sum(parts[1:], parts[0])),), True, _number(parts))
        found = [one.message for one in model.generate([messages], stop=stop, **given).generations[0]]
        return Said(tuple(map(_told, found)), False, _number(found))

    def _model(self, name: str, key: str, cached: bool) -> Any:
        from langchain_openai import ChatOpenAI

        if (name, key, cached) not in self._models:
            self._models[name, key, cached] = ChatOpenAI(
                model=name, api_key=key, base_url=self._address, max_retries=0, cache=None if cached else False
            )
        return self._models[name, key, cached]

    def close(self) -> None:
        """Close our cache."""
        if self._ours is not None:
            self._ours.close()


def _message(message: dict[str, Any]) -> Any:
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

    kind = {"user": HumanMessage, "system": SystemMessage, "assistant": AIMessage}[message["role"]]
    return kind(content=message["content"])


def _told(message: Any) -> tuple[str, str, str]:
    named = [(one["name"], one["args"]) for one in message.tool_calls]
    text = message.content if isinstance(message.content, str) else " ".join(texts({"content": message.content}))
    return text, message.response_metadata.get("finish_reason", ""), json.dumps(named) if named else ""


def _number(messages: list[Any]) -> int | None:
    numbers = (number_of(one.response_metadata.get("system_fingerprint")) for one in messages)
    return next((number for number in numbers if number is not None), None)
