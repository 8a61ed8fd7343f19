"""Whether all that share a prefix have the same secret: keys and sources that another one names are nobody's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from blake3 import blake3

from mmcache.tiers.valkey.replies import Down, Refusal
from mmcache.tiers.valkey.words import Request, Script

_SAME = Script("redis.call('SET',KEYS[1],ARGV[1],'NX') return redis.call('GET',KEYS[1])")


class Asks(Protocol):
    """What is needed of a `Client`."""

    def ask(self, requests: Sequence[Request]) -> list[Any]:
        """See `Client.ask`."""


def same_secret(client: Asks, prefix: str, secret: bytes) -> bool | Down | Refusal:
    """Whether the first who shared this prefix had `secret`, too; or why the server does not say. What stands on the
    server gives nothing away."""
    key = prefix.encode() + b"{realm}"
    mine = blake3(secret, derive_key_context="mmcache 2026 shared realm fingerprint v1").digest(length=16)
    (reply,) = client.ask([Request(key, _SAME.words([key], [mine]))])
    if isinstance(reply, Down | Refusal):
        return reply
    return reply == mine if isinstance(reply, bytes) else Down(f"the server answers {reply!r:.40}, which is no text")
