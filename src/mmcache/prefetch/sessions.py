"""`Sessions`: what each session looked for lately. Pure: time is an argument."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from mmcache.model.errors import SettingsError

N = TypeVar("N", bound=Hashable)


class Sessions(Generic[N]):
    """The last nodes of each session, newest first.

    gap: seconds without a visit after which a session has ended, and its next visit begins another one.
    most: sessions that are remembered; over that the one that was quiet for longest is forgotten.
    window: nodes that are remembered of each.
    """

    def __init__(self, gap: float = 1800.0, most: int = 10_000, window: int = 4) -> None:
        if not (gap > 0 and most >= 1 and window >= 1):
            raise SettingsError("sessions need a gap above 0 s, and at least one session of at least one node")
        self.gap, self.most, self.window = gap, most, window
        self._sessions: OrderedDict[Hashable, tuple[float, tuple[N, ...]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def visit(self, session: Hashable, node: N, now: float) -> tuple[N, ...] | None:
        """`session` looks for `node`: what it looked for before, newest first, without `node` itself.

        None: it looked for the same thing just now, so that there is nothing to learn from it.
        """
        earlier = self.recent(session, now)
        others = tuple(other for other in earlier if other != node)
        self._sessions[session] = (now, (node, *others)[: self.window])
        self._sessions.move_to_end(session)
        if len(self._sessions) > self.most:
            self.shed()
        return None if earlier and earlier[0] == node else others

    def recent(self, session: Hashable, now: float) -> tuple[N, ...]:
        """Its last nodes, newest first; empty: it is unknown, or has ended."""
        then, nodes = self._sessions.get(session, (now, ()))
        return nodes if now - then <= self.gap else ()

    def shed(self) -> None:
        """Forget the one that was quiet for longest."""
        self._sessions.popitem(last=False)
