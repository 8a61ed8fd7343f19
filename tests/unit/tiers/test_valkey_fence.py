"""Which puts must prove what: tokens as one process holds them, without any server."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mmcache.model.event import RefuseReason
from mmcache.model.key import Key
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.both_claims import BothClaims
from mmcache.tiers.valkey import fence
from mmcache.tiers.valkey.fence import UNCONDITIONAL, Fenced, Tokens

KEY = make_key(1)
FRAME = make_frame(KEY)


def leading(token: bytes | RefuseReason = b"t1") -> Tokens:
    tokens = Tokens()
    tokens.hold(KEY, token)
    return tokens


def test_who_leads_nothing_puts_without_a_token() -> None:
    tokens = Tokens()
    assert tokens.of(FRAME) == UNCONDITIONAL
    assert tokens.of(tokens.mark(FRAME)) == UNCONDITIONAL
    tokens.settled(KEY, UNCONDITIONAL)
    assert tokens.release(KEY) is None


def test_a_leaders_put_needs_its_token_and_ends_the_lease() -> None:
    tokens = leading()
    assert tokens.held(KEY)
    assert tokens.of(FRAME) == b"t1"
    assert tokens.of(make_frame(make_key(2))) == UNCONDITIONAL
    tokens.settled(KEY, b"t1")
    assert tokens.of(FRAME) is RefuseReason.INVALIDATED, "it is spent"
    assert tokens.due() == []
    assert tokens.release(KEY) is None, "its put has ended the lease"
    assert not tokens.held(KEY)
    assert tokens.of(FRAME) == UNCONDITIONAL


def test_what_somebody_said_before_a_computation_began_does_not_take_its_token() -> None:
    tokens = Tokens()
    said = tokens.mark(FRAME)
    tokens.hold(KEY, b"t1")
    assert tokens.of(said) == UNCONDITIONAL
    tokens.settled(KEY, UNCONDITIONAL)
    assert tokens.of(FRAME) == b"t1", "which the server refuses now"


def test_an_overtaken_put_does_not_end_a_later_computation_that_was_overtaken_too() -> None:
    tokens = leading()
    tokens.outdate([KEY])
    marked = tokens.mark(FRAME)
    tokens.release(KEY)
    tokens.hold(KEY, b"t2")
    tokens.outdate([KEY])
    assert tokens.of(marked) is RefuseReason.INVALIDATED
    assert tokens.of(FRAME) is RefuseReason.INVALIDATED
    assert tokens.held(KEY)


def test_who_gives_up_gives_the_token_back() -> None:
    tokens = leading()
    assert tokens.release(KEY) == b"t1"
    assert tokens.release(KEY) is None
    assert tokens.of(FRAME) == UNCONDITIONAL, "what comes now is somebody else's word"


def test_a_put_on_its_way_keeps_its_token_and_its_lease_until_it_is_out() -> None:
    tokens = leading()
    marked = tokens.mark(FRAME)
    assert isinstance(marked, Fenced)
    assert (marked.header, marked.payload, marked.checksum) == (FRAME.header, FRAME.payload, FRAME.checksum)
    assert tokens.release(KEY) is None
    assert tokens.due() == [(KEY, b"t1")], "renewed all the same"
    assert not tokens.held(KEY)
    assert tokens.of(FRAME) == UNCONDITIONAL, "a Cache.put that comes meanwhile"
    assert tokens.of(marked) == b"t1"
    tokens.settled(KEY, b"t1")
    assert tokens.due() == []
    assert tokens.of(marked) == b"t1", "the server will refuse it, should it be put again"


def test_another_put_ends_what_was_on_its_way() -> None:
    tokens = leading()
    tokens.mark(FRAME)
    tokens.release(KEY)
    tokens.settled(KEY, UNCONDITIONAL)
    assert tokens.due() == []


def test_blind_and_overtaken_computations_are_told_apart() -> None:
    tokens = leading(RefuseReason.TIER_DOWN)
    assert (tokens.blind, tokens.due()) == (1, [])
    assert tokens.of(FRAME) is RefuseReason.TIER_DOWN
    assert tokens.of(tokens.mark(FRAME)) is RefuseReason.TIER_DOWN
    assert tokens.release(KEY) is None
    tokens = leading()
    tokens.overtaken(KEY, b"other")
    assert tokens.of(FRAME) == b"t1"
    tokens.overtaken(KEY, b"t1")
    tokens.overtaken(KEY, b"t1")
    assert (tokens.lost, tokens.due()) == (1, [])
    assert tokens.of(tokens.mark(FRAME)) is RefuseReason.INVALIDATED
    assert tokens.release(KEY) is None
    assert len(tokens) == 0


@pytest.mark.parametrize("marked", [True, False])
def test_a_drop_outdates_what_is_being_computed_whether_the_server_hears_of_it_or_not(marked: bool) -> None:
    tokens = leading()
    if marked:
        tokens.mark(FRAME)
        tokens.release(KEY)
    tokens.outdate([KEY, make_key(2)])
    assert tokens.due() == []
    assert tokens.of(FRAME) == (UNCONDITIONAL if marked else RefuseReason.INVALIDATED)


def test_an_overtaken_put_on_its_way_is_not_renewed() -> None:
    tokens = leading()
    tokens.mark(FRAME)
    tokens.release(KEY)
    tokens.overtaken(KEY, b"t1")
    assert (len(tokens), tokens.lost) == (0, 1)


def test_a_later_computation_is_not_ended_by_an_earlier_put() -> None:
    tokens = leading()
    marked = tokens.mark(FRAME)
    tokens.release(KEY)
    tokens.hold(KEY, b"t2")  # the first lease had ended meanwhile
    assert tokens.of(marked) == b"t1"
    tokens.settled(KEY, b"t1")
    assert tokens.of(FRAME) == b"t2"


def test_what_is_left_behind_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "MOST_LEFT_BEHIND", 64)
    tokens = Tokens()
    for n in range(200):
        tokens.hold(make_key(n), b"%d" % n)
        tokens.mark(make_frame(make_key(n)))
        tokens.release(make_key(n))
        assert len(tokens) <= 65
    assert tokens.due()[-1] == (make_key(199), b"199")
    tokens.forget()
    assert tokens.due() == []


def test_tokens_are_drawn_anew() -> None:
    assert len({Tokens.draw() for _ in range(100)}) == 100


class Listed:
    """Claims that note what they are asked."""

    def __init__(self, name: str, log: list[str], grants: bool = True, fails: bool = False) -> None:
        self.name, self.log, self.grants, self.fails = name, log, grants, fails

    def acquire(self, key: Key) -> bool:
        self.log.append(f"+{self.name}")
        if self.fails:
            raise OSError(self.name)
        return self.grants

    def acquire_all(self, keys: Sequence[Key]) -> list[bool]:
        return [self.acquire(key) and key != make_key(0) for key in keys]

    def release(self, key: Key) -> None:
        self.log.append(f"-{self.name}")
        if self.fails:
            raise OSError(self.name)


@pytest.mark.parametrize(
    ("near", "far", "log"), [(True, True, "+near +far"), (False, True, "+near"), (True, False, "+near +far -near")]
)
def test_both_claims_are_held_or_none(near: bool, far: bool, log: str) -> None:
    said: list[str] = []
    both = BothClaims(Listed("near", said, near), Listed("far", said, far))
    assert both.acquire(KEY) == (near and far)
    assert said == log.split()


def test_both_claims_are_given_back_in_reverse_also_when_one_fails() -> None:
    log: list[str] = []
    both = BothClaims(Listed("near", log), Listed("far", log, fails=True))
    with pytest.raises(OSError, match="far"):
        both.acquire(KEY)
    with pytest.raises(OSError, match="far"):
        both.release(KEY)
    assert log == ["+near", "+far", "-near", "-far", "-near"]
    log.clear()
    with pytest.raises(OSError, match="far"):
        both.acquire_all([KEY, make_key(2)])
    assert log.count("-near") == log.count("+near") == 2


def test_of_many_claims_those_are_held_that_both_grant() -> None:
    log: list[str] = []
    assert BothClaims(Listed("near", log), Listed("far", log)).acquire_all([KEY, make_key(0), make_key(2)]) == [
        True, False, True,
    ]  # fmt: skip
    assert log == ["+near", "+near", "+near", "+far", "+far"]
    log.clear()
    assert BothClaims(Listed("near", log), Listed("far", log, grants=False)).acquire_all([KEY]) == [False]
    assert log == ["+near", "+far", "-near"]
