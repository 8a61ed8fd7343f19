"""Entropy-LFU, and the entropy of an attention map."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mmcache.model.block import Facts
from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.model.key import Key
from mmcache.policies.entropy import EntropyLFU, attention_entropy
from mmcache.testing import make_key

LOGITS = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=1, max_dims=3, max_side=6), elements=st.floats(-50, 50, width=32)
)


@given(LOGITS)
def test_equals_its_definition(logits: Any) -> None:
    weights = np.exp(logits.astype(np.float64))
    weights /= weights.sum(axis=-1, keepdims=True)
    expected = float((weights * -np.log(np.maximum(weights, 1e-300))).sum(axis=-1).mean())
    assert attention_entropy(logits) == pytest.approx(expected, abs=1e-9)
    assert attention_entropy(weights, logits=False) == pytest.approx(expected, abs=1e-9)
    assert -1e-12 <= attention_entropy(logits) <= math.log(logits.shape[-1]) + 1e-9


def test_from_sure_to_unsure() -> None:
    assert attention_entropy([[0.0, 1.0, 0.0]], logits=False) == 0.0
    assert attention_entropy(np.zeros((2, 4, 9))) == pytest.approx(math.log(9))
    assert attention_entropy(np.zeros((3, 5)), axis=0) == pytest.approx(math.log(3))
    assert attention_entropy([1e4, 0.0, -1e4]) == 0.0


def test_masked_tokens_count_for_nothing() -> None:
    masked = -math.inf
    assert attention_entropy([[1.0, 1.0, masked], [masked, masked, masked]]) == pytest.approx(math.log(2))
    assert attention_entropy([[2.0, 2.0, 0.0], [0.0, 0.0, 0.0]], logits=False) == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("scores", "logits"),
    [([], True), ([math.nan, 0.0], True), ([math.inf, 0.0], True), ([-math.inf] * 2, True), ([-0.1, 1.0], False),
     ([0.0, 0.0], False), ([math.nan], False)],
)  # fmt: skip
def test_no_map(scores: list[float], logits: bool) -> None:
    with pytest.raises(InvalidInputError):
        attention_entropy(scores, logits=logits)


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "touch", "drop"]),
        st.integers(0, 5),
        st.none() | st.sampled_from([0.5, 0.501, 1.0, 2.0]) | st.floats(0, 8),
    ),
    max_size=60,
)


@given(CALLS)
def test_the_highest_mean_of_the_last_five_goes_first_then_the_least_used(
    calls: list[tuple[str, int, float | None]],
) -> None:
    policy = EntropyLFU()
    entropies: dict[Key, list[float]] = {}
    uses: dict[Key, int] = {}

    def rank(key: Key) -> tuple[int, int]:
        last = entropies[key][-5:] or [2.0]
        return -round(math.fsum(last) / len(last) / 0.01), uses[key]

    order: list[Key] = []
    for now, (call, n, entropy) in enumerate(calls):
        key = make_key(n)
        before = rank(key) if key in uses else None
        match call:
            case "add":
                policy.add(key, Facts(1, entropy=entropy), now)
                entropies.setdefault(key, []).extend([] if entropy is None else [entropy])
                uses.setdefault(key, 1)
            case "touch":
                policy.touch(key, now)
                if key in uses:
                    uses[key] += 1
            case _:
                policy.drop(key)
                entropies.pop(key, None)
                uses.pop(key, None)
        if key in uses and rank(key) != before:
            order = [other for other in order if other != key] + [key]
        order = [other for other in order if other in uses]
        assert list(policy.victims(now)) == sorted(order, key=rank)


def test_without_entropies_it_is_an_lfu() -> None:
    policy = EntropyLFU()
    for n in (1, 2, 3):
        policy.add(make_key(n), Facts(1), 0.0)
    for n in (1, 1, 2):
        policy.touch(make_key(n), 1.0)
    assert list(policy.victims(1.0)) == [make_key(3), make_key(2), make_key(1)]


def test_news_of_a_block_is_no_use_of_it() -> None:
    policy = EntropyLFU()
    policy.add(make_key(1), Facts(1), 0.0)
    policy.add(make_key(1), Facts(1, entropy=1.5), 1.0)
    assert policy.explain(make_key(1), 1.0)["uses"] == 1.0


def test_what_is_unknown_stands_between_sure_and_unsure() -> None:
    policy = EntropyLFU(unknown=1.0)
    policy.add(make_key(1), Facts(1, entropy=0.2), 0.0)
    policy.add(make_key(2), Facts(1), 0.0)
    policy.add(make_key(3), Facts(1, entropy=3.0), 0.0)
    assert list(policy.victims(0.0)) == [make_key(3), make_key(2), make_key(1)]
    why = policy.explain(make_key(3), 0.0)
    assert why == pytest.approx({"entropy": 3.0, "attentions": 1.0, "uses": 1.0, "score": -2.995})
    assert policy.explain(make_key(2), 0.0)["attentions"] == 0.0


@pytest.mark.parametrize("settings", [{"unknown": -1.0}, {"unknown": math.inf}, {"grain": 0.0}, {"grain": math.nan}])
def test_settings_out_of_bounds(settings: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        EntropyLFU(**settings)
