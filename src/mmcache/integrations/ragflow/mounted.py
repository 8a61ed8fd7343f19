"""`Mounted`: the webhook as ASGI, in front of another application: `Mounted(build(proxy), cache, secret)`."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mmcache.fill import in_thread
from mmcache.integrations.ragflow.webhook import LARGEST_BYTES, PATH, Answer, check_secret, receive

if TYPE_CHECKING:
    from mmcache.cache import Cache

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Mounted:
    """Answers `POST /mmcache/webhooks/ragflow`; everything else goes to `app`. tenant: see `receive`.

    Raises `SettingsError` for a weak secret.
    """

    def __init__(
        self, app: App, cache: Cache, secret: str, *, tenant: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        check_secret(secret)
        self._app, self._cache, self._secret, self._tenant, self._clock = app, cache, secret, tenant, clock

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http" or scope["path"] != PATH:
            return await self._app(scope, receive, send)
        answer = await self._answered(scope, receive)
        if answer is None:
            return None
        status, told = answer
        body = json.dumps(told).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if status == 405:
            headers.append((b"allow", b"POST"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answered(self, scope: Message, source: Receive) -> Answer | None:
        """None where the sender has gone."""
        if scope["method"] != "POST":
            return 405, {"error": {"code": "method", "message": "messages are POSTed"}}
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            found = name.decode("latin-1").lower()
            if found in headers and found in ("authorization", "x-mmcache-signature", "content-encoding"):
                return 400, {"error": {"code": "invalid", "message": f"{found} is given twice"}}
            headers[found] = value.decode("latin-1")
        if headers.get("content-encoding", "identity").lower() != "identity":
            return 415, {"error": {"code": "encoding", "message": "messages are sent uncompressed"}}
        body, more = b"", True
        while more and len(body) <= LARGEST_BYTES:
            message = await source()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
        taken: Answer = await in_thread(
            partial(receive, body, headers, self._secret, self._cache, self._clock(), tenant=self._tenant)
        )
        return taken
