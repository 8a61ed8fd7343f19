"""The upstream as a process: OpenAI's chat interface over the repository's own vision-language model, and embeddings.

`python -m mmcache.lab.gateways.upstream` prints its address as JSON. It remembers what its model said of a picture, so
that a cache in front of it is timed, and not the model; it counts the chat requests that reach it (`/count`).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import io
import json
import sys
import time
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from mmcache.lab.gateways.answering import KEYS, MODELS, reply
from mmcache.lab.models import TextEncoder
from mmcache.lab.models.vlm import VisionLanguage
from mmcache.model.errors import AssetError, InvalidInputError

NOISE = 2.0
"""Standard deviations of what the model sees that temperature 1 disturbs it by: how this greedy model samples."""
CHAT = "/v1/chat/completions"


class Model:
    """The model, with a memory."""

    def __init__(self) -> None:
        self._model = VisionLanguage()
        self._model.load()
        self._tokens: dict[bytes, npt.NDArray[np.float32]] = {}
        self.look = lru_cache(maxsize=None)(self._look)

    def _look(self, url: str, question: str | None, temperature: float, seed: int) -> str:
        tokens = self._seen(url)
        if temperature:
            noise = np.random.default_rng(seed).normal(0, NOISE * temperature * float(tokens.std()), tokens.shape)
            tokens = (tokens + noise).astype(np.float32)
        return self._model.describe(tokens) if question is None else self._model.answer(tokens, question)

    def embed(self, text: str) -> list[float]:
        """multilingual-e5-small of `text`."""
        return [float(one) for one in self._encoder.encode(text)]

    @cached_property
    def _encoder(self) -> TextEncoder:
        return TextEncoder()

    def _seen(self, url: str) -> npt.NDArray[np.float32]:
        try:
            file = base64.b64decode(url.partition(",")[2], validate=True)
            picture = Image.open(io.BytesIO(file)).convert("RGB")
        except (binascii.Error, UnidentifiedImageError, OSError) as error:
            raise InvalidInputError("a picture is not one") from error
        name = hashlib.sha256(repr(picture.size).encode() + picture.tobytes()).digest()
        if name not in self._tokens:
            self._tokens[name] = np.asarray(self._model.encoder.encode(picture), np.float32)
        return self._tokens[name]


def answer(request: dict[str, Any], model: Model, number: int) -> dict[str, Any]:
    """A whole answer. Its fingerprint says which request it was computed for: so whoever serves it later shows that."""
    choices, usage = reply(request, lambda *seen: model.look(*seen))
    return {
        "id": f"chatcmpl-{number}", "object": "chat.completion", "created": int(time.time()), "model": request["model"],
        "choices": choices, "usage": usage, "system_fingerprint": f"fp_{number}",
    }  # fmt: skip


def events(request: dict[str, Any], whole: dict[str, Any]) -> Iterator[bytes]:
    """The same as a stream, a word at a time."""
    head = {name: whole[name] for name in ("id", "created", "model", "system_fingerprint")}
    head["object"] = "chat.completion.chunk"

    def event(**fields: Any) -> bytes:
        return b"data: " + json.dumps(head | fields).encode() + b"\n\n"

    for choice in whole["choices"]:
        message, place = choice["message"], choice["index"]
        yield event(choices=[{"index": place, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
        calls = [{"index": 0} | call for call in message.get("tool_calls") or ()]
        words = (message["content"] or "").split(" ")
        deltas = [{"tool_calls": calls}] if calls else [
            {"content": word if place == 0 else f" {word}"} for place, word in enumerate(words)
        ]  # fmt: skip
        for delta in deltas:
            yield event(choices=[{"index": place, "delta": delta, "finish_reason": None}])
        yield event(choices=[{"index": place, "delta": {}, "finish_reason": choice["finish_reason"]}])
    if (request.get("stream_options") or {}).get("include_usage"):
        yield event(choices=[], usage=whole["usage"])
    yield b"data: [DONE]\n\n"


def application(model: Model) -> Any:
    """The aiohttp application."""
    from aiohttp import web

    counted = {"chat": 0}

    def refused(status: int, why: str) -> Any:
        return web.json_response({"error": {"message": why, "type": "invalid_request_error"}}, status=status)

    async def chat(asked: web.Request) -> web.StreamResponse:
        if asked.headers.get("authorization", "").removeprefix("Bearer ") not in KEYS:
            return refused(401, "no such key")
        counted["chat"] += 1
        number, request = counted["chat"], await asked.json()
        try:
            whole = await asyncio.to_thread(answer, request, model, number)
        except InvalidInputError as error:
            return refused(400, str(error))
        if not request.get("stream"):
            return web.json_response(whole)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(asked)
        for event in events(request, whole):
            await response.write(event)
        return response

    async def models(asked: web.Request) -> web.StreamResponse:
        if asked.headers.get("authorization", "").removeprefix("Bearer ") not in KEYS:
            return refused(401, "no such key")
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in MODELS]})

    async def embeddings(asked: web.Request) -> web.StreamResponse:
        request = await asked.json()
        inputs = [request["input"]] if isinstance(request["input"], str) else request["input"]
        vectors = [await asyncio.to_thread(model.embed, text) for text in inputs]
        data = [{"object": "embedding", "index": place, "embedding": one} for place, one in enumerate(vectors)]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return web.json_response({"object": "list", "data": data, "model": request["model"], "usage": usage})

    async def count(_: web.Request) -> web.StreamResponse:
        return web.json_response(counted)

    app = web.Application(client_max_size=32 << 20)
    app.add_routes(
        [
            web.post(CHAT, chat),
            web.get("/v1/models", models),
            web.post("/v1/embeddings", embeddings),
            web.get("/count", count),
        ]
    )
    return app


async def serve() -> None:
    """Until the input ends: with whoever started it."""
    from aiohttp import web

    runner = web.AppRunner(application(Model()), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(json.dumps({"address": f"http://127.0.0.1:{runner.addresses[0][1]}"}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    try:
        asyncio.run(serve())
    except AssetError as missing:
        print(json.dumps({"missing": str(missing)}), flush=True)
