"""`HotScores`: two numbers a key, bounded, whoever tells."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from mmcache import Cache
from mmcache.hotkeys.score import PUBLISHED, hot_score
from mmcache.hotkeys.scores import HotScores
from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.model.key import Key


def key(number: int) -> Key:
    return Key.from_bytes(number.to_bytes(48, "big"))


def test_parts_by_name_and_heat_alone_where_nothing_is_known() -> None:
    scores = HotScores(weights=PUBLISHED)
    assert scores.score(key(1), 3.0) == (2.0, {"heat": 3.0})
    scores.note(key(1), 2.0, 1.0)
    found = scores.score(key(1), 3.0)
    assert found.parts == {"heat": 3.0, "entropy": 2.0, "divergence": 1.0}
    assert found.score == pytest.approx(2.0 + 0.7 * 2.0 + 0.3 * 1.0)
    assert found.score == pytest.approx(float(hot_score(3.0, 2.0, 1.0, PUBLISHED)))


def test_attention_weighs_nothing_by_default() -> None:
    scores = HotScores()
    scores.note(key(1), 5.0, 5.0)
    assert scores.score(key(1), 7.0).score == 3.0


def test_the_first_few_count_alike_then_the_latest_more() -> None:
    scores = HotScores(share=0.5)
    scores.note(key(1), 1.0, 0.0)
    scores.note(key(1), 2.0, 0.0)
    assert scores.known(key(1)) == (1.5, 0.0)
    scores.note(key(1), 3.5, 0.0)
    assert scores.known(key(1)) == (2.5, 0.0)  # half, not a third
    for _ in range(200):
        scores.note(key(1), 0.25, 4.0)
    assert scores.known(key(1)) == pytest.approx((0.25, 4.0))


def test_maps_of_a_request_and_a_cache_that_is_told() -> None:
    told = list[tuple[Key, float]]()
    scores = HotScores(tell=lambda *what: told.append(what))
    words = np.full((2, 4), 0.25)
    found = scores.attended(key(1), words, [0.25, 0.25, 0.25, 0.25])
    assert found == pytest.approx((np.log(4), 0.0))
    assert scores.known(key(1)) == found
    assert told == [(key(1), found.entropy)]
    with Cache(memory="1MiB") as cache:
        block = cache.key("a cat", modality="text", signature="one")
        cache.put(block, "vector")
        HotScores(tell=cache.attended).attended(block, words, words)


def test_no_more_keys_than_said_the_longest_silent_goes() -> None:
    scores = HotScores(most=3)
    for number in (1, 2, 3):
        scores.note(key(number), 1.0, 1.0)
    scores.note(key(1), 1.0, 1.0)
    for number in range(4, 1000):
        scores.note(key(1), 1.0, 1.0)
        scores.note(key(number), 1.0, 1.0)
    assert len(scores) == 3
    assert scores.known(key(1)) is not None
    assert scores.known(key(2)) is None
    scores.forget(key(1))
    scores.forget(key(1))
    assert len(scores) == 2


@pytest.mark.parametrize("nats", [(-1.0, 0.0), (0.0, -1.0), (float("nan"), 0.0), (0.0, float("inf"))])
def test_what_is_no_number_of_nats_is_refused_and_changes_nothing(nats: tuple[float, float]) -> None:
    scores = HotScores()
    with pytest.raises(InvalidInputError):
        scores.note(key(1), *nats)
    with pytest.raises(InvalidInputError):
        scores.attended(key(1), [0.5, 0.6], [0.5, 0.5])
    assert len(scores) == 0
    with pytest.raises(InvalidInputError):
        scores.score(key(1), nats[0] if nats[0] != 0 else -1.0)


def test_what_cannot_be_set() -> None:
    for wrong in ({"most": 0}, {"share": 0.0}, {"share": 1.5}, {"weights": PUBLISHED._replace(attention=np.inf)}):
        with pytest.raises(SettingsError):
            HotScores(**wrong)


def test_threads_share_one() -> None:
    scores = HotScores(most=50)

    def tell(begin: int) -> None:
        for number in range(2000):
            scores.note(key((begin + number) % 120), 1.0, 2.0)
            scores.score(key(number % 120), 1.0)

    threads = [threading.Thread(target=tell, args=(17 * place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(scores) == 50
    assert {scores.known(key(number)) for number in range(120)} <= {None, (1.0, 2.0)}
