"""Servers for the benchmark of the proxy, each a process: `python _proxy_peer.py constant|upstream PORT [BODY]`.

`constant` answers everything with one body, under the very server and settings of `mmcache serve`: what no proxy in
this language and server can be quicker than. `upstream` embeds at once, and streams chats slowly.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn

from mmcache.server.drain import BoundedProtocol, listen

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
LENGTH = 384
JSON = [(b"content-type", b"application/json")]


async def whole(receive: Receive) -> bytes:
    """A request's body."""
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body


async def send_whole(send: Send, body: bytes) -> None:
    """An answer of one piece."""
    headers = [*JSON, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def constant(body: bytes) -> Callable[..., Awaitable[None]]:
    """The same body, whatever is asked; the request is read."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await whole(receive)
        await send_whole(send, body)

    return app


def embedded(request: dict[str, Any]) -> bytes:
    """Vectors of fixed random numbers: what is asked for changes nothing about the work."""
    given = request["input"] if isinstance(request["input"], list) else [request["input"]]
    vector = np.random.default_rng(0).normal(size=LENGTH).astype("<f4")
    packed = request.get("encoding_format") == "base64"
    value: Any = base64.b64encode(vector.tobytes()).decode() if packed else vector.astype(float).tolist()
    data = [{"object": "embedding", "index": place, "embedding": value} for place in range(len(given))]
    usage = {"prompt_tokens": len(given), "total_tokens": len(given)}
    reply = {"object": "list", "data": data, "model": request["model"], "usage": usage}
    return json.dumps(reply).encode()


async def chat(request: dict[str, Any], send: Send) -> None:
    """`n` pieces of `size` bytes, `pause` seconds apart, as the last message says: `{"n": 10, …}`."""
    wanted = json.loads(request["messages"][-1]["content"].partition(" ")[2])
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": request["model"]}

    def event(delta: Any, reason: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return f"data: {json.dumps(head | {'choices': [choice]})}\n\n".encode()

    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(wanted["n"]):
        piece = event({"role": "assistant", "content": "x" * wanted["size"]}, None)
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(wanted["pause"])
    await send({"type": "http.response.body", "body": event({}, "stop") + b"data: [DONE]\n\n"})


async def upstream(scope: Message, receive: Receive, send: Send) -> None:
    """See the module."""
    if scope["type"] != "http":
        return
    body = await whole(receive)
    if scope["path"] == "/v1/models":
        return await send_whole(send, b'{"object":"list","data":[{"id":"m","object":"model"}]}')
    request = json.loads(body)
    if scope["path"] == "/v1/chat/completions":
        return await chat(request, send)
    await send_whole(send, embedded(request))


def main() -> None:
    """See the module."""
    kind, port = sys.argv[1], int(sys.argv[2])
    app = upstream if kind == "upstream" else constant(Path(sys.argv[3]).read_bytes())
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, access_log=False, http=BoundedProtocol, ws="none", loop="auto",
        proxy_headers=False, server_header=False, backlog=2048,
    )  # fmt: skip
    listening = listen("127.0.0.1", port)
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
