"""`Demand`: whether somebody waits for a computation now. Pure: time is an argument.

A real lookup that missed has begun to wait; it waits no more when its key was stored, refused, or found after all, or
when its computation is over, whatever came of it. Of a miss that the cache does not fill itself (`get`, a door that
computes) nobody hears the end where nothing is stored: it counts as waiting until patience is over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from mmcache.model.event import Event, Failed, Hit, Missed, MissReason, Moved, Refused, Stored
from mmcache.model.key import Key

MOST = 4096
"""Keys that are waited for, at most; over that the oldest are forgotten."""


class Demand:
    """Keys that real requests wait for, and since when."""

    def __init__(self, patience: float) -> None:
        """patience: seconds."""
        self._patience = patience
        self._open: OrderedDict[Key, float] = OrderedDict()
        self._ours: set[Key] = set()
        self._computing = 0

    def heard(
        self, events: Iterable[Event], now: float, over: Iterable[Key] = (), computing: int = 0
    ) -> tuple[int, list[float]]:
        """Take events in, oldest first; misses, and for each wait that is over its seconds, at least.

        over: keys whose computation ended, however; taken before the events were. computing: how many are computed
        for somebody now.
        Events carry no time: what is stored in the same batch as it was missed took what computing it cost.
        """
        misses, waits = 0, []
        for event in events:
            if isinstance(event, Missed):
                if event.reason is not MissReason.BYPASSED and event.key not in self._ours:
                    misses += 1
                    self._open.setdefault(event.key, now)
                    if len(self._open) > MOST:
                        self._open.popitem(last=False)
            elif isinstance(event, Stored | Refused | Failed | Hit | Moved) and event.key is not None:
                since = self._open.pop(event.key, None)
                if since is not None:
                    waits.append(max(now - since, event.cost if isinstance(event, Stored) else 0.0))
        waits += [now - since for key in over if (since := self._open.pop(key, None)) is not None]
        self._computing = computing
        return misses, waits

    def waiting(self, now: float, besides: Key | None = None) -> int:
        """How many keys are waited for, `besides` not counted."""
        while self._open:
            key, since = next(iter(self._open.items()))
            if now - since < self._patience:
                break
            del self._open[key]
        return max(self._computing, len(self._open) - (besides in self._open))

    def looks_for(self, key: Key) -> bool:
        """Speculative work itself looks for `key`: nobody waits for that. Said before its miss is heard, or at once
        after: True = it was counted as a miss."""
        if len(self._ours) < MOST:
            self._ours.add(key)
        return self._open.pop(key, None) is not None

    def done(self) -> None:
        """No speculative work is under way."""
        self._ours.clear()

    def clear(self) -> None:
        """Nobody waits."""
        self._open.clear()
        self._computing = 0
