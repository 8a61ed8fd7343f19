"""Wait until a replica has what its primary has: a primary acknowledges before it has told anyone.

WAIT does not answer that. From Redis 7.2 on it looks at what its own connection wrote last, and what MIGRATE brings
comes by another. So the offsets in ROLE are compared; WAIT for more replicas than there are makes the primary ask them
at once how far they are, which they else tell once a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from mmcache.model.errors import ScaleError
from mmcache.scale.access import Contact
from mmcache.scale.present import Present
from mmcache.scale.views import whole

_FIRST_SECONDS, _LAST_SECONDS = 0.0005, 0.05
"""Between two looks."""


class Replication:
    """Of one primary; use it in a `with`.

    One replica is waited for: with several, the one that has most stands for election first.
    """

    def __init__(self, present: Present, name: str, patience_seconds: float) -> None:
        """patience_seconds: for a replica that is linked and says nothing.

        After as long as the cluster takes to call a node dead, nobody could take the primary's place any more, and a
        move that waits for ever keeps slots open for ever. From then on nobody is waited for, until one is heard again.
        """
        self._present, self._name, self._patience = present, name, patience_seconds
        self._silent_at = -1
        self._asking: Contact | None = None
        self._id = 0
        self._open = ExitStack()

    def caught_up(self) -> bool:
        """Whether a replica has all that the primary has had when this began, or there is none. Raises `ScaleError`."""
        goal, offsets = self._look()
        if not self._met(goal, offsets):
            if max(offsets) <= self._silent_at:
                return False
            with self._requested(len(offsets)):
                if not self._awaited(goal):
                    return False
        self._silent_at = -1
        return True

    def _awaited(self, goal: int) -> bool:
        end, pause = time.monotonic() + self._patience, _FIRST_SECONDS
        while True:
            time.sleep(pause)
            _, offsets = self._look()
            if self._met(goal, offsets):
                return True
            if time.monotonic() >= end:
                self._silent_at = max(offsets)
                return False
            pause = min(_LAST_SECONDS, pause * 1.5)

    @staticmethod
    def _met(goal: int, offsets: list[int]) -> bool:
        """No replica that is linked: nobody to wait for."""
        return not offsets or max(offsets) >= goal

    def _look(self) -> tuple[int, list[int]]:
        return _offsets(self._present.contact(self._name).ask("ROLE"))

    @contextmanager
    def _requested(self, replicas: int) -> Iterator[None]:
        """They tell when they have come so far."""
        if self._asking is None:
            member = self._present.member(self._name)
            self._asking = self._open.enter_context(self._present.access.to(member.host, member.port))
            self._id = self._asking.ask("CLIENT", "ID")
        self._asking.begin([("WAIT", replicas + 1, 1)], self._patience + self._present.access.timeout_seconds)
        yield
        # Its time is over, but an idle server notices up to a tenth of a second later.
        self._present.contact(self._name).tell([("CLIENT", "UNBLOCK", self._id)])
        self._asking.end()

    def __enter__(self) -> Replication:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def _offsets(role: Any) -> tuple[int, list[int]]:
    """How far a primary is, and its linked replicas, in bytes. One that is no primary has none."""
    if not isinstance(role, list) or len(role) != 3 or role[0] != b"master" or not isinstance(role[1], int):
        if isinstance(role, list) and role and role[0] == b"slave":
            return 0, []
        raise ScaleError(f"ROLE answers {role!r:.60}")
    try:
        return role[1], [whole(offset.decode()) for _, _, offset in role[2]]
    except (TypeError, ValueError, AttributeError, ScaleError) as error:
        raise ScaleError(f"ROLE answers {role!r:.60}") from error
