"""The smallest route: what the upstream answers to the same body is the same for ever."""

from __future__ import annotations

from mmcache.server import limits
from mmcache.server.exchange import Answered, Asked, Proxy, Verdict

ECHO = "/v1/echo"


async def echoed(asked: Asked, proxy: Proxy) -> Answered:
    """Cached by body and realm."""
    model = limits.parse(asked.body).get("model", "")
    key = proxy.cache.key(
        asked.body.decode(), modality="text", signature=f"echo-{model}", tenant=asked.tenant, namespace=asked.namespace
    )
    stored = await proxy.cache.a.get(key)
    if isinstance(stored, bytes):
        return Answered(200, [(b"content-type", b"application/json")], stored, Verdict("hit"), model)
    reply = await proxy.upstream.send(asked.method, asked.path, asked.query, asked.headers, asked.body)
    body = await reply.read()
    if reply.status == 200:
        proxy.cache.put(key, body)
    return Answered(reply.status, reply.headers, body, Verdict("miss", "absent"), model)
