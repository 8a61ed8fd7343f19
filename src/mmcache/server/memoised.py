"""The fast path: a body that was answered from the cache before is answered with the same bytes, for as long as every
block that they were made of is still there, is still the same, and may still be served.

That is asked of the cache itself, one `peek` a block. So invalidations (also by other processes and hosts), deadlines,
evictions, newer values and the kill switch reach these answers like any other, and hits count as uses of the blocks.
Only memory: after a restart the first repeat is put together from the blocks on disk.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blake3 import blake3

from mmcache.model.key import Key
from mmcache.server.config import RouteRules
from mmcache.server.exchange import Answered, Asked, Proxy, Verdict
from mmcache.server.tracing import current

LIMIT_BYTES = 64 << 20
INLINE_BYTES = 4096
"""Up to this length a body is compared itself, which is quicker than a digest of it."""
Name = tuple[str, str, str, bytes, int, bytes]
_ENTRY_BYTES = 1200
"""What one takes besides its bodies, about."""
_KEY_BYTES = 170
JSON = [(b"content-type", b"application/json")]
_GONE = object()


@dataclass(slots=True)
class _Known:
    blocks: tuple[tuple[Key, Any], ...]
    answered: Answered
    """Given to every caller: the frame does not change it."""
    created: float | None
    """When the oldest block was made, Unix seconds."""
    rules: RouteRules
    size: int


class Memo:
    """Answers by request, at most `limit_bytes` of them."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._secret = os.urandom(32)
        self._known: OrderedDict[Name, _Known] = OrderedDict()
        self._lock = threading.Lock()
        self._limit, self.bytes = limit_bytes, 0

    def name(self, asked: Asked) -> Name:
        """All that the answer may depend on; long bodies by a digest under a secret of this process."""
        body = asked.body
        if len(body) > INLINE_BYTES:
            body = blake3(body, key=self._secret).digest()
        return *asked.realm, asked.path, asked.query, len(asked.body), body

    def find(self, asked: Asked, proxy: Proxy) -> Answered | None:
        """The answer, if it may be given once more."""
        name = self.name(asked)
        known = self._known.get(name)
        if known is None:
            return None
        directives = asked.directives
        if directives.no_store or directives.no_cache or proxy.cache.answers.verify_share:
            return None
        if known.rules is not asked.rules and known.rules != asked.rules:
            return None
        answered = known.answered
        if known.created is not None:
            answered.verdict.age_seconds = age = proxy.cache.clock.wall() - known.created
            if directives.max_age is not None and age > directives.max_age:
                return None
        elif directives.max_age is not None:
            return None
        peek, there = proxy.cache.peek, True
        peeking = None if (traced := current()) is None else traced.peeking()
        for key, value in known.blocks:
            if peek(key, _GONE) is not value:
                there = False
                break
        if peeking is not None:
            peeking.done(proxy.cache.answers, [key for key, _ in known.blocks] if there else [])
        if not there:
            self._forget(name)
            return None
        try:  # noqa: SIM105 - `suppress` costs as much as all the rest
            self._known.move_to_end(name)
        except KeyError:  # another thread made room
            pass
        return answered

    def remember(
        self, asked: Asked, proxy: Proxy, values: Mapping[Key, Any], body: bytes, verdict: Verdict, model: str
    ) -> None:
        """`body` was made of `values`, which are all that the request asked for."""
        if asked.rules.mode != "on" or proxy.cache.mode != "on" or asked.directives.no_store:
            return
        blocks, created = [], None
        for key, value in values.items():
            look = proxy.cache.answers.read(key)
            held = look.make() if look.make is not None else _GONE
            if look.tier != "memory" or type(held) is not tuple or held != value:
                return
            blocks.append((key, held))
            if look.created is not None:
                created = look.created if created is None else min(created, look.created)
        kept = sum(len(part) for _, value in blocks for part in value if isinstance(part, bytes))
        size = _ENTRY_BYTES + len(body) + kept + _KEY_BYTES * len(blocks) + min(len(asked.body), INLINE_BYTES)
        if size > self._limit // 8:
            return
        name = self.name(asked)
        told = Verdict("hit", "", verdict.saved_seconds, verdict.details, verdict.age_seconds, verdict.saved_tokens)
        known = _Known(tuple(blocks), Answered(200, JSON, body, told, model), created, asked.rules, size)
        with self._lock:
            self._drop(name)
            self._known[name] = known
            self.bytes += size
            while self.bytes > self._limit:
                self._drop(next(iter(self._known)))

    def _forget(self, name: Name) -> None:
        with self._lock:
            self._drop(name)

    def _drop(self, name: Name) -> None:
        if (known := self._known.pop(name, None)) is not None:
            self.bytes -= known.size

    def __len__(self) -> int:
        return len(self._known)
