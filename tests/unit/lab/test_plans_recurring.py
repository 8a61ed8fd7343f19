"""When a plan is in: after it recurred, while it does, and never too many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mmcache import Cache
from mmcache.lab.plans_compiled import combination
from mmcache.lab.plans_recurring import FADED, Plans
from mmcache.model.errors import TierClosedError
from mmcache.model.key import Key


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache(memory="8MiB") as made:
        yield made


def plans(cache: Cache, *, recurrences: int = 3, review: int = 100, most: int = 64) -> Plans:
    return Plans(
        cache._store, cache.scopes, cache._tally, cache.events, cache.clock,
        recurrences=recurrences, every=1, review=review, most=most,
    )  # fmt: skip


def keys(cache: Cache, *models: str, text: str = "a") -> list[Key]:
    made = [cache.key(text, modality="text", signature=model) for model in models]
    for key in made:
        cache.put(key, "value")
    return made


def test_not_before_it_recurred_often_enough(cache: Cache) -> None:
    found, wanted = plans(cache), keys(cache, "one", "two")
    for turn in range(3):
        assert combination(wanted) not in found
        looks = found.look_up(wanted)
        assert (looks is None) == (turn < 2)
    assert combination(wanted) in found
    other = keys(cache, "one", "two", text="b")  # other inputs, the same combination
    looks = found.look_up(other)
    assert looks is not None
    assert [look.make() for look in looks if look.make] == ["value", "value"]


def test_a_miss_is_left_to_the_general_path_without_a_trace(cache: Cache) -> None:
    found, wanted = plans(cache), keys(cache, "one", "two")
    for _ in range(5):
        found.look_up(wanted)
    absent = [wanted[0], cache.key("absent", modality="text", signature="two")]
    before = cache.stats(), cache.events.recent()
    assert found.look_up(absent) is None
    assert (cache.stats(), cache.events.recent()) == before


def test_another_combination_of_the_same_first_scope_is_not_mistaken_for_it(cache: Cache) -> None:
    found, wanted = plans(cache), keys(cache, "one", "two")
    for _ in range(5):
        found.look_up(wanted)
    assert found.look_up(keys(cache, "one", "three")) is None
    assert found.look_up(keys(cache, "one")) is None


def test_what_faded_is_swapped_out(cache: Cache) -> None:
    found, wanted = plans(cache), keys(cache, "one", "two")
    for _ in range(FADED + 10):
        found.look_up(wanted)
    other = keys(cache, "four")
    for _ in range(100 - FADED - 10):
        found.look_up(other)
    assert combination(wanted) in found
    for _ in range(100):
        found.look_up(other)
    assert combination(wanted) not in found
    assert found.dropped >= 1


def test_what_mostly_misses_is_swapped_out(cache: Cache) -> None:
    found, wanted = plans(cache), keys(cache, "one")
    for _ in range(5):
        found.look_up(wanted)
    absent = [cache.key("absent", modality="text", signature="one")]
    for _ in range(94):
        found.look_up(absent)
    assert combination(wanted) in found
    found.look_up(absent)
    assert combination(wanted) not in found


def test_never_too_many_whatever_comes(cache: Cache) -> None:
    found = plans(cache, most=4, recurrences=2)
    for n in range(600):
        wanted = keys(cache, f"model-{n}")
        for _ in range(3):
            found.look_up(wanted)
        assert len(found) <= 4
        assert len(found._seen) <= 512


def test_nothing_and_closed(cache: Cache) -> None:
    found, wanted = plans(cache), keys(cache, "one")
    assert found.look_up([]) is None
    for _ in range(5):
        found.look_up(wanted)
    cache.close()
    with pytest.raises(TierClosedError):
        found.look_up(wanted)
