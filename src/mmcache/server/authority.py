"""A hit is authorised like a miss: who lost the right to ask upstream cannot read what was stored before.

A caller's yes is a success of the upstream's own for that model, or the model's place in the list that the upstream
shows for the caller's key (`trust.authority`). It is believed for `authority_seconds`; a no is never remembered.
"""

from __future__ import annotations

import asyncio
import time
from enum import Enum
from sys import intern
from typing import Any

import msgspec

from mmcache.model.errors import UpstreamError
from mmcache.server.config import TrustRules
from mmcache.server.exchange import Answered, Headers, Verdict
from mmcache.server.tenants import Principal
from mmcache.server.upstream import Upstream

MOST_MODELS = 256
PROBE_SECONDS = 10.0
"""Whoever takes longer to say what a key may use says nothing; then the request itself is sent."""
_NOT_SENT = frozenset({b"content-type", b"content-encoding", b"accept", b"range"})


class Answer(Enum):
    """What the upstream says, where it says nothing that the caller must see."""

    YES = "yes"
    ASK = "ask"
    """Nothing that can be believed either way: the request itself must be sent."""
    DOWN = "down"


class Authority:
    """Asks at most once at a time for a principal and model."""

    def __init__(self, upstream: Upstream, trust: TrustRules) -> None:
        self._upstream, self._path, self.seconds = upstream, trust.authority, trust.authority_seconds
        self._asking: dict[tuple[int, str], asyncio.Task[Answer | Answered]] = {}

    def believes(self, principal: Principal, model: str) -> bool:
        """Whether a yes is still good."""
        return self._path is None or principal.yes.get(model, 0.0) > time.monotonic()

    def succeeded(self, principal: Principal, *models: str) -> None:
        """The upstream has just served this caller."""
        if len(principal.yes) + len(models) > MOST_MODELS:
            principal.yes.clear()
        until = time.monotonic() + self.seconds
        for model in models[:MOST_MODELS]:
            principal.yes[intern(model)] = until  # thousands of callers have the same list

    async def ask(self, principal: Principal, model: str, headers: Headers) -> Answer | Answered:
        """YES, ASK or DOWN, or the upstream's refusal (401, 403) that the caller must see."""
        label = (id(principal), model)  # the task holds the principal, so that no other can have this id meanwhile
        task = self._asking.get(label)
        if task is None:
            task = self._asking[label] = asyncio.ensure_future(self._probe(principal, model, list(headers)))
            task.add_done_callback(lambda _: self._asking.pop(label, None))
        return await asyncio.shield(task)

    async def _probe(self, principal: Principal, model: str, headers: Headers) -> Answer | Answered:
        kept = [pair for pair in headers if pair[0] not in _NOT_SENT]
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                reply = await self._upstream.send("GET", self._path or "/", b"", kept, b"")
                try:
                    body = await reply.read()
                finally:
                    await reply.close()
        except TimeoutError:
            return Answer.ASK
        except UpstreamError:
            return Answer.DOWN
        if reply.status in (401, 403):
            principal.yes.clear()
            return Answered(reply.status, reply.headers, body, Verdict("miss", "denied"))
        if reply.status >= 500:
            return Answer.DOWN
        if not 200 <= reply.status < 300:
            return Answer.ASK
        names = _allowed(body, model)
        if model not in names:
            return Answer.ASK
        self.succeeded(principal, model, *names)
        return Answer.YES


def _allowed(body: bytes, model: str) -> list[str]:
    """The models that an answer names in OpenAI's form; `model` for another JSON object, which is about the key alone.
    None of them for what is no object, or holds an error: some give everybody a page, whatever they ask for."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return []
    if not isinstance(found, dict) or found.get("error"):
        return []
    entries = found.get("data")
    if not isinstance(entries, list):
        return [model]
    return [entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
