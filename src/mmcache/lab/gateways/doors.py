"""How an application asks: `Door` is one cache as an application uses it. Over HTTP here; libraries in `peers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from mmcache.lab.gateways.said import Said, joined, whole

CHAT = "/v1/chat/completions"


class Door(Protocol):
    """One cache, used as its own documentation says."""

    def ask(self, body: dict[str, Any], key: str, *, cached: bool) -> Said:
        """Answer a request of the tenant with this API key. cached: False = the same client without the cache."""
        ...

    def close(self) -> None:
        """End, so that another process may go on with the same folder."""
        ...


class Http:
    """httpx, straight to the upstream, or to a proxy in front of it."""

    def __init__(self, upstream: str, proxy: str) -> None:
        import httpx

        self._client = httpx.Client(timeout=60)
        self._upstream, self._proxy = upstream, proxy

    def ask(self, body: dict[str, Any], key: str, *, cached: bool) -> Said:
        """Raises `httpx.HTTPError`."""
        import httpx

        sent = json.dumps(body).encode()
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        address = (self._proxy if cached else self._upstream) + CHAT
        got = self._client.post(address, content=sent, headers=headers)
        if got.status_code != 200:
            raise httpx.HTTPError(f"{got.status_code}: {got.text[:300]}")
        if not got.headers["content-type"].startswith("text/event-stream"):
            return whole(got.json())
        lines = (line.removeprefix("data: ") for line in got.text.split("\n") if line.startswith("data: "))
        return joined([json.loads(line) for line in lines if line != "[DONE]"])

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def door(name: str, upstream: str, proxy: str, folder: Path) -> Door:
    """By the contender's name. proxy: the address of what stands before the upstream, or keeps the answers.

    Raises `AssetError` where its package is not installed.
    """
    from mmcache.lab.gateways import peers, peers_langchain, peers_redisvl

    match name.partition("/"):
        case "litellm", _, kind:
            return peers.LiteLLM(upstream, kind, proxy, folder)
        case "gptcache", _, kind:
            return peers.GPTCache(upstream, kind, folder)
        case "redisvl", _, kind:
            return peers_redisvl.RedisVL(upstream, kind, proxy, folder)
        case "langchain", _, kind:
            return peers_langchain.LangChain(upstream, kind, folder)
        case _:
            return Http(upstream, proxy)
