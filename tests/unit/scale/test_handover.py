"""How a replica is made to take its primary's place, and for how long it is left alone when it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from mmcache.model.errors import ScaleError
from mmcache.scale.access import Access, Contact
from mmcache.scale.controller import never
from mmcache.scale.handover import failover
from mmcache.scale.observed import Member, NodeSeen, Observed
from mmcache.scale.present import Present
from mmcache.scale.steps import Failover
from mmcache.scale.views import View, read_view

IDS = {"0-0": "a" * 40, "0-1": "b" * 40}
SEEN = Observed(
    (Member(0, 0, "10.0.0.1", 6379), Member(0, 1, "10.0.0.2", 6379)),
    {"0-0": NodeSeen(IDS["0-0"]), "0-1": NodeSeen(IDS["0-1"], IDS["0-0"])},
)


class Stand:
    """Stands for `Present`: a primary and its replica; `then` is what comes of them at each wait. No time passes."""

    access = Access()

    def __init__(self, *then: Callable[[Stand], None], timeout: Any = b"5000") -> None:
        self.seen, self.primary, self.epoch, self.answers, self.timeout = SEEN, "0-0", 4, True, timeout
        self.told: list[tuple[Any, ...]] = []
        self.waits: list[float] = []
        self._then = list(then)

    def contact(self, name: str) -> Stand:
        return self

    def ask(self, *words: Any) -> bytes:
        if words == ("CLUSTER", "INFO"):
            return b"cluster_my_epoch:1\r\ncluster_current_epoch:%d\r\n" % self.epoch
        self.told.append(words)
        return b"OK"

    def tell(self, commands: Any) -> list[Any]:
        return [[b"cluster-node-timeout", self.timeout]]

    def node_timeout_ms(self) -> int:
        return Contact.node_timeout_ms(cast(Contact, self))

    def named(self, id_: str) -> str | None:
        return next((name for name, one in IDS.items() if one == id_), None)

    def view(self, name: str) -> View:
        if not self.answers and name == "0-0":
            raise ScaleError("it does not answer")
        role, of = ("master", "-") if name == self.primary else ("slave", IDS[self.primary])
        return read_view(f"{IDS[name]} 10.0.0.1:6379@16379 myself,{role} {of} 0 0 1 connected\n".encode())

    def patiently(self, met: Callable[[], object], cancelled: Callable[[], bool], seconds: float) -> bool:
        self.waits.append(seconds)
        if not met() and self._then:
            self._then.pop(0)(self)
        return bool(met())


def taken(stand: Stand) -> None:
    stand.primary = "0-1"


def asked(stand: Stand) -> None:
    """It asked for votes, and got too few."""
    stand.epoch += 1


def nothing(stand: Stand) -> None: ...


def dead(stand: Stand) -> None:
    stand.answers = False


def done(stand: Stand, *, by_force: bool = False) -> None:
    failover(Failover("0-1", by_force), cast(Present, stand), never)


def test_it_takes_its_place() -> None:
    stand = Stand(taken)
    done(stand)
    assert stand.told == [("CLUSTER", "FAILOVER")]
    done(stand)
    assert len(stand.told) == 1


def test_one_whose_primary_did_not_hear_may_try_again_at_once() -> None:
    stand = Stand(nothing)
    with pytest.raises(ScaleError, match="its primary does not know it yet"):
        done(stand)
    assert len(stand.waits) == 1


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(b"1000", 5.0), (b"5000", 21.0), (b"15000", 60.0), (None, 60.0), (b"nonsense", 60.0)],
    ids=["short", "default", "long", "unsaid", "nonsense"],
)  # fmt: skip
def test_one_that_was_not_let_is_left_alone_until_it_may_ask_again(timeout: Any, seconds: float) -> None:
    stand = Stand(asked, nothing, timeout=timeout)
    with pytest.raises(ScaleError, match="too few of the primaries voted for it"):
        done(stand)
    assert sum(stand.waits) == max(6.0, seconds)
    assert stand.told == [("CLUSTER", "FAILOVER")], "never by force"


def test_votes_that_come_late_count() -> None:
    done(Stand(asked, taken))


def test_nobody_rests_when_the_primary_dies() -> None:
    stand = Stand(asked, dead)
    with pytest.raises(ScaleError, match="its primary is none any more, or gone"):
        done(stand)
    assert stand.told == [("CLUSTER", "FAILOVER")]


def test_the_place_of_one_that_is_gone_is_taken_without_a_vote() -> None:
    stand = Stand(taken)
    done(stand, by_force=True)
    assert stand.told == [("CLUSTER", "FAILOVER", "TAKEOVER")]
    with pytest.raises(ScaleError, match="did not take its primary's place"):
        done(Stand(nothing), by_force=True)
