"""Each of the eleven reasons has a cause that makes it, and says in a few words which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.unit.semantic.world import MODEL, WORDINGS, Model, picture, semantic

from mmcache import Cache, Tenant
from mmcache.missing import LONGEST, clipped, differing
from mmcache.model.errors import TierError
from mmcache.model.event import Failed, Missed, MissReason
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.model.void import VoidKey
from mmcache.policies.lru import LRU
from mmcache.semantic.prompt import Prompt
from mmcache.settings import MemorySettings
from mmcache.testing import FakeClock, WholeThaw
from mmcache.tiers.base import Found
from mmcache.tiers.faults import Fault, FaultyTier, scripted
from mmcache.tiers.memory import MemoryTier
from mmcache.tiers.wrapper import Wrapper

R = MissReason


class Says(Wrapper):
    """A tier that answers with a reason, or fails with one."""

    def __init__(self, answer: MissReason | Exception) -> None:
        super().__init__(MemoryTier(MemorySettings(1 << 20), LRU(), WholeThaw))
        self.name, self.answer = "remote", answer

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return [self.answer] * len(keys)


def key_of(cache: Cache, text: str = "a cat", version: str = "v1", **more: Any) -> Key:
    return cache.key(text, modality="text", signature=version, **more)


def last(cache: Cache) -> tuple[MissReason, str]:
    """Of the last miss; the counters agree with the events."""
    missed = [event for event in cache.events.recent() if isinstance(event, Missed)]
    stats = cache.stats()
    assert stats.misses == sum(stats.miss_reasons.values()) == len(missed)
    assert len(missed[-1].detail) <= LONGEST
    return missed[-1].reason, missed[-1].detail


def absent() -> tuple[MissReason, str]:
    with Cache() as cache:
        cache.get(key_of(cache))
        return last(cache)


def expired() -> tuple[MissReason, str]:
    clock = FakeClock()
    with Cache(clock=clock) as cache:
        cache.put(key_of(cache), 1, ttl=5)
        clock.advance(6)
        cache.get(key_of(cache))
        return last(cache)


def expired_a_while_ago() -> tuple[MissReason, str]:
    clock = FakeClock()
    with Cache(clock=clock) as cache:
        cache.put(key_of(cache), 1, ttl=5)
        clock.advance(6)
        cache.stats()
        cache.get(key_of(cache))
        return last(cache)


def older_than_the_caller_takes() -> tuple[MissReason, str]:
    clock = FakeClock()
    with Cache(clock=clock) as cache:
        cache.put(key_of(cache), 1)
        asyncio.run(cache.answers.look_up_many_async([key_of(cache)], since=clock.wall() + 1))
        return last(cache)


def evicted() -> tuple[MissReason, str]:
    with Cache(memory="64KiB", policy="lru") as cache:
        for n in range(40):
            cache.put(key_of(cache, f"text {n}"), np.zeros(256))
        cache.get(key_of(cache, "text 0"))
        return last(cache)


def evicted_by_its_tenants_quota() -> tuple[MissReason, str]:
    with Cache(memory="1MiB", tenants={"acme": Tenant("normal", quota="32KiB")}, admission="always") as cache:
        for n in range(40):
            cache.put(key_of(cache, f"text {n}", tenant="acme"), np.zeros(256))
        cache.get(key_of(cache, "text 0", tenant="acme"))
        return last(cache)


def another_signature() -> tuple[MissReason, str]:
    with Cache() as cache:
        cache.put(key_of(cache, version="v1"), 1)
        cache.put(key_of(cache, version="v2"), 1)
        cache.get(cache.key("a cat", modality="text", signature=Signature(model_version="v1", dtype="fp16")))
        return last(cache)


def corrupt() -> tuple[MissReason, str]:
    inner = MemoryTier(MemorySettings(1 << 20), LRU(), WholeThaw)
    inner.name = "remote"
    with Cache(lower=[FaultyTier(inner, scripted([Fault.CORRUPT], ["get"]))]) as cache:
        cache.put(key_of(cache), np.arange(8.0))
        cache._store.memory.drop([key_of(cache)])
        cache.get(key_of(cache))
        return last(cache)


def bypassed() -> tuple[MissReason, str]:
    with Cache() as cache:
        cache.get_or_compute(key_of(cache), list, bypass=True)
        return last(cache)


def switched_off() -> tuple[MissReason, str]:
    with Cache(mode="off") as cache:
        cache.get_or_compute(key_of(cache), list)
        return last(cache)


def guarded() -> tuple[MissReason, str]:
    with Cache() as cache:
        encode = cache.wrap(len, modality="text", signature="v1")
        assert encode._guard is not None
        encode._guard._skip = 1
        encode("a cat")
        return last(cache)


def abstained() -> tuple[MissReason, str]:
    one, other, _ = WORDINGS["animal"]
    with Cache(semantic=semantic()) as cache:
        cache.ask(Prompt(one, pictures=[picture(1)]), Model(), model=MODEL)
        cache.ask(Prompt(other, pictures=[picture(1)]), Model(), model=MODEL)
        return last(cache)


def rows_unknown() -> tuple[MissReason, str]:
    with Cache() as cache:
        cache.get_or_compute(VoidKey.of(key_of(cache).scope, R.STALE_LEASE), list)
        return last(cache)


def remote(answer: MissReason | Exception) -> Callable[[], tuple[MissReason, str]]:
    def cause() -> tuple[MissReason, str]:
        with Cache(lower=[Says(answer)]) as cache:
            cache.get(key_of(cache))
            return last(cache)

    return cause


def refused_by_size() -> tuple[MissReason, str]:
    with Cache(memory="64KiB") as cache:
        cache.put(key_of(cache), np.zeros(1 << 16))
        cache.get(key_of(cache))
        return last(cache)


def refused_by_quota() -> tuple[MissReason, str]:
    with Cache(memory="1MiB", tenants={"acme": Tenant("normal", quota="2KiB")}, admission="always") as cache:
        cache.put(key_of(cache, tenant="acme"), np.zeros(1 << 12))
        cache.get(key_of(cache, tenant="acme"))
        return last(cache)


def invalidated() -> tuple[MissReason, str]:
    with Cache() as cache:
        cache.put(key_of(cache), 1)
        cache.invalidate(key_of(cache))
        cache.get(key_of(cache))
        return last(cache)


CAUSES: list[tuple[Callable[[], tuple[MissReason, str]], MissReason, str]] = [
    (absent, R.ABSENT, ""),
    (invalidated, R.ABSENT, "invalidated"),
    (refused_by_size, R.ABSENT, "refused by memory: too-large"),
    (refused_by_quota, R.ABSENT, "refused by memory: quota of acme"),
    (expired, R.EXPIRED, "memory"),
    (expired_a_while_ago, R.EXPIRED, "expired in memory"),
    (older_than_the_caller_takes, R.EXPIRED, "older than the caller takes"),
    (evicted, R.EVICTED, "evicted from memory: space"),
    (evicted_by_its_tenants_quota, R.EVICTED, "evicted from memory: quota of acme"),
    (another_signature, R.SIGNATURE, "is stored: dtype differs (and 1 more)"),
    (corrupt, R.CORRUPT, "remote: cannot be decoded: its payload fails its checksum"),
    (bypassed, R.BYPASSED, "asked for"),
    (switched_off, R.BYPASSED, "switched off"),
    (guarded, R.BYPASSED, "a lookup costs more than computing"),
    (abstained, R.ABSTAINED, "words: CONTENT differs"),
    (rows_unknown, R.STALE_LEASE, "rows: "),
    (remote(R.DENIED), R.DENIED, "remote"),
    (remote(R.TIMEOUT), R.TIMEOUT, "remote"),
    (remote(R.TIER_DOWN), R.TIER_DOWN, "remote"),
    (remote(R.ABSTAINED), R.ABSTAINED, "remote"),
    (remote(TierError("no route to user:secret@ or redis://user:secret@host")), R.TIER_DOWN, "redis://host"),
]


@pytest.mark.parametrize(("cause", "reason", "words"), CAUSES, ids=[f"{r}-{w[:24]}" for _, r, w in CAUSES])
def test_a_cause_gives_its_reason_and_says_which(
    cause: Callable[[], tuple[MissReason, str]], reason: MissReason, words: str
) -> None:
    found, detail = cause()
    assert found is reason
    assert words in detail if words else detail == ""


def test_every_reason_has_a_cause() -> None:
    assert {reason for _, reason, _ in CAUSES} == set(MissReason)


def test_what_a_tier_complained_of_explains_only_its_own_misses_and_only_for_a_while() -> None:
    clock = FakeClock()
    with Cache(lower=[Says(R.DENIED)], clock=clock) as cache:
        key, other = key_of(cache), key_of(cache, "a dog")
        cache._store.emit(Failed("remote", "the server refused to read: NOPERM", key))
        cache.get(key)
        assert last(cache)[1] == "remote: the server refused to read: NOPERM"
        cache.get(other)
        assert last(cache)[1] == "remote"
        cache._store.emit(Failed("elsewhere", "all is lost"))
        cache._store.emit(Failed("remote", "nobody answers"))
        cache.get(other)
        assert last(cache)[1] == "remote: nobody answers"
        clock.advance(61)
        cache.get(other)
        assert last(cache)[1] == "remote"


def test_explain_says_it_too() -> None:
    with Cache() as cache:
        cache.put(key_of(cache, version="v1"), 1)
        found = cache.explain(key_of(cache, version="v2"))
        assert found.verdict == "miss (signature)"
        assert found.detail.endswith("is stored: model_version differs")
        assert found.detail in str(found)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("a\nb\tc", "a b c"),
        ("valkey://user:secret@host:1 down", "valkey://host:1 down"),
        ("valkey://:secret@host", "valkey://host"),
        ("no route to user:secret@host", "no route to host"),
        ("cannot write to /srv/a/b.mmc: OSError(28, '/srv/a/b.mmc')", "cannot write to …: OSError(28, '…')"),
        ("200 ms and/or more", "200 ms and/or more"),
        ("x" * 500, "x" * (LONGEST - 1) + "…"),
    ],
)
def test_words_are_one_short_line_without_secrets(words: str, wanted: str) -> None:
    assert clipped(words) == wanted


def test_fields_that_differ() -> None:
    one, other = Signature(model_version="a", dtype="x"), Signature(model_version="b", tokenizer="t", dtype="x")
    assert differing(one, other) == ["model_version", "tokenizer"]
    assert differing(one, one) == []
