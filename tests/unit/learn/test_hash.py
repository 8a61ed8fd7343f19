"""A hash learns what pairs tell, and says so on concepts that it did not see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.learn.hash_scores import average_precision, balance, correlation, hamming, unpacked
from mmcache.model.errors import InvalidInputError, SettingsError

pytest.importorskip("torch", reason="training needs torch")

from mmcache.learn.hash_judge import choose, learn
from mmcache.learn.hash_pairs import kept_back
from mmcache.learn.hash_start import rotation
from mmcache.learn.hash_train import PUBLISHED, Paired, Recipe, train

QUICK = Recipe(steps=20, batch=64)


def pairs(concepts: int = 160, seed: int = 0, noise: float = 0.3) -> Paired:
    """Two modalities that see eight common causes, each through a mixing of its own."""
    draw = np.random.default_rng(seed)
    causes = draw.standard_normal((concepts, 8))
    category = (causes[:, :2] > 0) @ np.array([1, 2])
    rows, concept = {}, {}
    for modality, width, copies in (("image", 24, 2), ("text", 12, 1)):
        mixing = draw.standard_normal((8, width))
        of = np.tile(np.arange(concepts), copies)
        rows[modality] = (causes[of] @ mixing + noise * draw.standard_normal((len(of), width))).astype(np.float32)
        concept[modality] = of
    return Paired(rows, concept, category)


def test_it_finds_pairs_that_it_never_saw() -> None:
    hashed, judged = learn(pairs(), (QUICK,), seed=1)
    assert judged.learned
    assert (judged.trained, judged.kept_back) == (128, 32)
    scores = {(one.asked, one.known, one.relevance): one for one in judged.scores}
    assert scores["image", "text", "concept"].after > 0.6
    assert scores["image", "text", "concept"].before < 0.4
    assert scores["text", "image", "category"].after > scores["text", "image", "category"].before + 0.1
    assert set(judged.bits) == {"image", "text"}
    assert hashed.notes["kept back"] == "32"


def test_shuffled_pairs_teach_nothing() -> None:
    from mmcache.lab.hash_arena import shuffled

    held = kept_back(pairs(), 0.2, 1)
    training, unseen = pairs().of(~held), pairs().of(held)
    found = []
    for one in (training, shuffled(training, 0)):
        hashed = train(one, QUICK, seed=1)
        codes = {modality: hashed.code(modality, rows) for modality, rows in unseen.rows.items()}
        same = unseen.concept["text"][:, None] == unseen.concept["image"][None, :]
        found.append(average_precision(hamming(codes["text"], codes["image"]), same).mean())
    assert found[0] > 0.5 > 0.25 > found[1]


def test_noise_is_not_taken_for_something_learned() -> None:
    """Half of all noise scores better than an untrained hash, so better is not enough."""
    found = []
    for seed in range(8):
        draw = np.random.default_rng(seed)
        rows = {name: draw.standard_normal((100, width)).astype(np.float32) for name, width in (("a", 12), ("b", 8))}
        noise = Paired(rows, dict.fromkeys(rows, np.arange(100)), np.full(100, -1))
        found.append(learn(noise, (Recipe(steps=0),), seed=seed)[1])
    assert not any(judged.learned for judged in found)
    assert len({judged.chance for judged in found}) > 2
    (_, real) = learn(pairs(), (Recipe(steps=0),), seed=1)
    assert real.learned
    assert real.chance == 1 / 200


@pytest.mark.parametrize("recipe", [QUICK, replace(PUBLISHED, steps=20, batch=64)])
def test_one_seed_makes_one_hash(recipe: Recipe) -> None:
    first, again, other = (train(pairs(), recipe, seed=seed) for seed in (3, 3, 4))
    assert (first.prototypes == again.prototypes).all()
    assert (first.heads["image"].weight == again.heads["image"].weight).all()
    assert not (first.prototypes == other.prototypes).all()


def test_training_leaves_the_programs_random_numbers_alone() -> None:
    import torch

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(pairs(), QUICK)
    assert torch.equal(torch.rand(3), expected)


def test_rows_without_a_partner_and_unknown_categories_do_no_harm() -> None:
    some = pairs()
    lonely = replace(some, category=np.where(np.arange(160) % 2, -1, some.category))
    kept = lonely.concept["text"] % 3 > 0
    lonely = replace(
        lonely,
        rows={**lonely.rows, "text": lonely.rows["text"][kept]},
        concept={**lonely.concept, "text": lonely.concept["text"][kept]},
    )
    assert learn(lonely, (QUICK,))[1].learned


def bad(**change: Any) -> Paired:
    return replace(pairs(), **change)


@pytest.mark.parametrize(
    "wrong",
    [
        pairs(10),
        bad(rows={"image": pairs().rows["image"]}, concept={"image": pairs().concept["image"]}),
        bad(rows={**pairs().rows, "text": np.full((160, 12), np.nan, np.float32)}),
        bad(rows={**pairs().rows, "text": np.zeros((0, 12), np.float32)}),
        bad(rows={**pairs().rows, "text": np.zeros((160, 9000), np.float32)}),
    ],
)
def test_what_cannot_be_learned_from_is_refused(wrong: Paired) -> None:
    with pytest.raises(InvalidInputError):
        train(wrong, QUICK)


def test_the_better_recipe_is_chosen_within_the_training_set() -> None:
    hopeless = replace(PUBLISHED, steps=0)
    assert choose(pairs(), (hopeless, QUICK), seed=2) == QUICK
    assert choose(pairs(), (hopeless,)) == hopeless


@given(st.integers(0, 1000), st.sampled_from([1, 3, 32, 64]))
def test_a_rotation_is_a_tight_frame_of_its_directions(seed: int, directions: int) -> None:
    points = np.random.default_rng(seed).standard_normal((40, 128)).astype(np.float32)
    found = rotation(points, seed, directions, rounds=2)
    assert found.shape == (64, 128)
    assert np.abs(found[:, :directions].T @ found[:, :directions] - np.eye(directions)).max() < 1e-4
    assert not found[:, directions:].any()
    if directions == 64:
        assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < 1e-4


@pytest.mark.parametrize("seed", [1, 2])
def test_bits_of_the_strong_directions_find_more_where_the_others_are_noise(seed: int) -> None:
    draw = np.random.default_rng(seed)
    causes, names = draw.standard_normal((300, 8)), ("image", "text")
    rows = {
        name: (causes @ draw.standard_normal((8, 80)) + 4 * draw.standard_normal((300, 80))).astype(np.float32)
        for name in names
    }
    noisy = Paired(rows, dict.fromkeys(names, np.arange(300)), np.full(300, -1))
    held = kept_back(noisy, 0.3, 1)
    unseen, found = noisy.of(held), []
    for directions in (64, 8):
        hashed = train(noisy.of(~held), Recipe(steps=0, directions=directions), seed=1)
        image, text = (hashed.code(name, unseen.rows[name]) for name in names)
        found.append(average_precision(hamming(text, image), np.eye(int(held.sum()), dtype=bool)).mean())
    assert found[1] > found[0] + 0.05


@pytest.mark.parametrize("directions", [0, 65])
def test_directions_that_there_are_not_are_refused(directions: int) -> None:
    with pytest.raises(SettingsError):
        train(pairs(), Recipe(directions=directions))


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_a_share_that_leaves_nothing_is_refused(share: float) -> None:
    with pytest.raises(SettingsError):
        kept_back(pairs(), share, 0)


def test_average_precision_is_what_it_says() -> None:
    distance = np.array([[0, 1, 2, 3], [3, 2, 1, 0]], np.float32)
    relevant = np.array([[True, False, True, False], [True, False, False, False]])
    assert average_precision(distance, relevant).tolist() == pytest.approx([(1 + 2 / 3) / 2, 1 / 4])
    assert average_precision(distance, relevant, depth=2).tolist() == pytest.approx([1 / 2, 0])
    nothing = np.zeros((1, 4), bool)
    assert average_precision(distance[:1], nothing).tolist() == []


@given(st.integers(0, 1000))
def test_ties_follow_chance_not_the_gallery(seed: int) -> None:
    relevant = np.zeros((1, 50), bool)
    relevant[0, 0] = True
    mean = np.mean(
        [average_precision(np.zeros((1, 50), np.float32), relevant, s, 50)[0] for s in range(seed, seed + 60)]
    )
    assert mean < 0.35


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=12), st.lists(st.integers(0, 2**64 - 1), max_size=12))
def test_hamming_counts_bits(one: list[int], other: list[int]) -> None:
    found = hamming(np.array(one, np.uint64), np.array(other, np.uint64))
    assert found.tolist() == [[(a ^ b).bit_count() for b in other] for a in one]


def test_balance_and_correlation_of_known_bits() -> None:
    draw = np.random.default_rng(0)
    independent = draw.integers(0, 2**63, 4000, dtype=np.uint64) * np.uint64(2) + draw.integers(
        0, 2, 4000, dtype=np.uint64
    )
    assert np.abs(balance(independent) - 0.5).max() < 0.05
    assert correlation(independent) < 0.03
    alike = np.where(draw.integers(0, 2, 100) == 1, np.uint64(2**64 - 1), np.uint64(0))
    assert correlation(alike) == pytest.approx(1.0)
    assert correlation(np.zeros(5, np.uint64)) == 1.0
    assert unpacked(np.array([1, 2**63], np.uint64))[:, [0, 63]].tolist() == [[True, False], [False, True]]
