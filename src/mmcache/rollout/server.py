"""`ServerRecords`: records on the shared tier's server, for processes of any number of machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from mmcache.model.errors import TierError
from mmcache.rollout.state import MOST_BYTES
from mmcache.tiers.valkey.replies import Down, Refusal
from mmcache.tiers.valkey.words import Request, Script

_SWAP = Script(f"""
local found=redis.call('GETRANGE',KEYS[1],0,{MOST_BYTES})
if found==ARGV[2] then return 2 end
if found~=ARGV[1] then return 0 end
redis.call('SET',KEYS[1],ARGV[2])
redis.call('SADD',KEYS[2],ARGV[3])
return 1
""")
"""Keys: record, set of records. Arguments: what it must be (empty = absent), what it becomes, its name. 1 = replaced,
2 = it is that already: perhaps by us, when the answer was lost and the client asked again."""


class Asks(Protocol):
    """What is needed of `tiers.valkey.client.Client`."""

    def ask(self, requests: Sequence[Request]) -> list[Any]:
        """Replies in order; `Refusal` or `Down` in the place of one that failed."""


class ServerRecords:
    """Records under `prefix{rollout}:`, all in one slot. They have no deadline."""

    look_every, waits = 1.0, True

    def __init__(self, client: Asks, prefix: str) -> None:
        self._client = client
        self._all = f"{prefix}{{rollout}}".encode()

    def read(self, record: str) -> bytes | None:
        """See `Records`."""
        return bytes(self._ask(self._key(record), ("GETRANGE", self._key(record), 0, MOST_BYTES))) or None

    def swap(self, record: str, old: bytes | None, new: bytes, *, patience: float = 1.0, durable: bool = True) -> bool:
        """See `Records`. Whether it is durable is the server's own matter."""
        key = self._key(record)
        done = self._ask(key, _SWAP.words([key, self._all], [old or b"", new, record]))
        return done == 1 or (done == 2 and durable)

    def names(self) -> list[str]:
        """See `Records`."""
        found = [bytes(name).decode("ascii", "replace") for name in self._ask(self._all, ("SMEMBERS", self._all))]
        return sorted(name for name in found if "." not in name)

    def _key(self, record: str) -> bytes:
        return self._all + b":" + record.encode()

    def _ask(self, key: bytes, words: Any) -> Any:
        (reply,) = self._client.ask([Request(key, words)])
        if isinstance(reply, Refusal | Down):
            raise TierError(f"the shared tier: {reply}")
        return reply
