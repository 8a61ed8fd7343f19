"""`Census`: what a shared tier holds, listed page by page from every node."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mmcache.model.errors import TierError
from mmcache.model.event import Event, Failed
from mmcache.model.frame import PRELUDE_BYTES, length_at_rest
from mmcache.tiers.base import Held
from mmcache.tiers.valkey.chunks import UNREADABLE
from mmcache.tiers.valkey.client import Client, Node
from mmcache.tiers.valkey.names import Names
from mmcache.tiers.valkey.record import LONGEST_HEAD, Record, head_bytes, names_in
from mmcache.tiers.valkey.replies import Down, Refusal
from mmcache.tiers.valkey.watch import ClockWatch
from mmcache.tiers.valkey.words import Request

_PAGE = 512
_LIKELY_HEAD = 1024


@dataclass
class Sum:
    """Of all that the prefix holds."""

    blocks: int = 0
    bytes: int = 0
    chunked: int = 0
    """Blocks that are in pieces."""
    down: int = 0
    """Nodes that did not answer."""


class Census:
    """Lists names by cursor: seconds for millions. May name a key twice while nodes exchange slots."""

    def __init__(
        self, client: Client, names: Names, watch: ClockWatch, where: str, emit: Callable[[Event], None]
    ) -> None:
        self._client, self._names, self._watch, self._where, self._emit = client, names, watch, where, emit

    def scan(self) -> Iterator[Held]:
        """See `Tier.scan`. An end that cannot be told is minus infinity. Raises `TierError`."""
        for node in self._nodes():
            for page in self._pages(node):
                heads = [name for name in page if self._names.key_of(name) is not None]
                requests = []
                for name in heads:
                    requests += [
                        Request(name, ("GETRANGE", name, 0, _LIKELY_HEAD - 1)),
                        Request(name, ("STRLEN", name)),
                    ]
                replies = self._watch.ask(requests) if requests else []
                for name, raw, size in zip(heads, replies[::2], replies[1::2], strict=True):
                    held = self._held(name, raw, size)
                    if held is not None:
                        yield held

    def _nodes(self) -> list[Node]:
        nodes = self._client.primaries()
        if not nodes:
            raise TierError("no node of the shared tier answers; see that it runs")
        return list(nodes)

    def _pages(self, node: Node) -> Iterator[list[bytes]]:
        """Names of the prefix. Raises `TierError`."""
        cursor, seen = b"0", set[bytes]()
        while True:
            (reply,) = self._client.ask_node(node, [("SCAN", cursor, "MATCH", self._names.pattern, "COUNT", _PAGE)])
            if isinstance(reply, Refusal | Down):
                raise TierError(f"{node} did not list its keys: {reply}")
            try:
                cursor, found = str(int(reply[0])).encode(), list(reply[1])
            except (ValueError, TypeError, LookupError) as error:
                raise TierError(f"{node} listed its keys as {reply!r:.40}") from error
            yield [name for name in found if isinstance(name, bytes)]
            if cursor == b"0":
                return
            if cursor in seen:  # they only grow (bits reversed), whatever the server's table does meanwhile
                raise TierError(f"{node} lists its keys in a circle")
            seen.add(cursor)

    def _held(self, name: bytes, raw: Any, size: Any) -> Held | None:
        key = self._names.key_of(name)
        if key is None or not isinstance(raw, bytes | memoryview) or not isinstance(size, int) or not raw:
            return None
        try:
            if _LIKELY_HEAD < head_bytes(raw) + PRELUDE_BYTES <= LONGEST_HEAD + PRELUDE_BYTES:
                request = Request(name, ("GETRANGE", name, 0, LONGEST_HEAD + PRELUDE_BYTES))
                (raw,) = self._client.ask([request])
                if not isinstance(raw, bytes | memoryview):
                    return None
            record, owners = Record.decode(raw), names_in(raw)
        except UNREADABLE as error:
            self._emit(Failed(self._where, f"an entry cannot be read: {error}"))
            return None
        deadline = None
        if record.until is not None:
            deadline = self._watch.local(record.machine, record.until)
            deadline = -math.inf if deadline is None else deadline
        if record.chunks:
            size = record.length + (length_at_rest(raw[record.length : record.length + PRELUDE_BYTES]) or 0)
        return Held(key, size, deadline, record.created, *owners)

    def count(self) -> Sum:
        """How much there is, as far as nodes answer."""
        found = Sum()
        try:
            nodes = self._nodes()
        except TierError as error:
            self._emit(Failed(self._where, str(error)))
            return Sum(down=1)
        for node in nodes:
            try:
                for page in self._pages(node):
                    self._add(page, found)
            except TierError as error:
                self._emit(Failed(self._where, str(error)))
                found.down += 1
        return found

    def _add(self, page: list[bytes], found: Sum) -> None:
        heads = {name for name in page if self._names.key_of(name) is not None}
        pieces = [name for name in page if b"}:c:" in name and self._names.key_of(name.partition(b":c:")[0])]
        found.chunked += sum(name.endswith(b":0") for name in pieces)
        names = [*heads, *pieces]
        for name, size in zip(names, self._client.ask([Request(one, ("STRLEN", one)) for one in names]), strict=True):
            if isinstance(size, int) and size:
                found.bytes += size
                found.blocks += name in heads
