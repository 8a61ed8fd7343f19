"""The contest of hashes: nothing of a tested name is trained on, and missing data says how to get it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mmcache.lab import fetch
from mmcache.model.errors import AssetError

pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("scipy", reason="the lab needs scipy")

from mmcache.lab.data.concepts import Concept
from mmcache.lab.hash_arena import Answer, Pool, contest, pool, questions, shuffled
from mmcache.lab.hash_rivals import cca, itq, joined
from mmcache.lab.pairs import Features, Pairs
from mmcache.lab.table import Result, silent
from mmcache.lab.table_ushash import METHODS, USHashTable, _chosen, _rows
from mmcache.learn.hash_train import Recipe

QUICK = Recipe(steps=5, batch=64)


def data(name: str, concepts: int, sounds: bool, seed: int) -> Pairs:
    """Modalities that see six common causes."""
    draw = np.random.default_rng(seed)
    causes = draw.standard_normal((concepts, 6))

    def seen(width: int, source: tuple[str, ...]) -> Features:
        of = np.tile(np.arange(concepts), len(source))
        rows = causes[of] @ draw.standard_normal((6, width)) + 0.3 * draw.standard_normal((len(of), width))
        return Features(rows.astype(np.float32), of, tuple(word for word in source for _ in range(concepts)))

    modalities = {"image": seen(20, ("a", "b")), "text": seen(12, ("en", "fr"))}
    if sounds:
        modalities["audio"] = seen(16, ("fr",))
    kinds = tuple("ab"[int(row[0] > 0)] for row in causes)
    return Pairs(name, modalities, kinds, tuple(f"thing {i // 2}" for i in range(concepts)))


def two_sets() -> Pool:
    # Both sets draw their own mixings, as two kinds of pictures would; widths agree, as one encoder's do.
    return pool([data("one", 120, True, 0), data("two", 60, False, 0)])


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    return contest(two_sets(), 0, QUICK, silent, deep_steps=5)


def test_no_name_is_on_both_sides() -> None:
    joint = two_sets()
    for seed in range(3):
        test = joint.split(seed)
        assert 0.2 < test.mean() < 0.3
        assert not set(joint.root[test]) & set(joint.root[~test])


def test_sets_share_no_category_and_are_asked_apart() -> None:
    joint = two_sets()
    assert not set(joint.pairs.category[:120]) & set(joint.pairs.category[120:])
    test = joint.split(0)
    asked = list(questions(joint, test))
    assert [(one.set, one.direction) for one in asked] == [
        ("one", "T→I"), ("one", "I→T"), ("one", "A→T"), ("two", "T→I"), ("two", "I→T")
    ]  # fmt: skip
    for one in asked:
        ask, gallery = {"T→I": ("text", "image"), "I→T": ("image", "text"), "A→T": ("audio", "text")}[one.direction]
        for modality, places in ((ask, one.ask), (gallery, one.gallery)):
            concepts = joint.pairs.concept[modality][places]
            assert test[concepts].all()
            assert set(joint.of_set[concepts]) == {one.set}
        if one.direction == "A→T":
            assert set(joint.source["text"][one.gallery]) == {"fr"}
        else:
            assert set(joint.source["text"][one.ask if ask == "text" else one.gallery]) == {"en"}


def test_the_contest_asks_everybody_the_same_and_the_control_learns_nothing(answers: list[Answer]) -> None:
    assert {one.method for one in answers} == {*METHODS, "definition/float"}
    counts = {method: sum(one.method == method for one in answers) for method in METHODS}
    assert len(set(counts.values())) == 1
    found = {row.id: row.ours or 0.0 for row in _rows(answers)}
    assert found["instance/A→T/ours"] > found["instance/A→T/shuffled"] + 20
    assert found["instance/T→I/cca/float"] > found["instance/T→I/shuffled"] + 20
    lead = found["instance/T→I/ours"] - max(
        found["instance/T→I/deep-hash-kinds"], found["instance/T→I/deep-hash-pairs"]
    )
    assert found["instance/T→I/over-deep-hash"] == pytest.approx(lead, abs=8)  # means by set of means by concept


def test_the_page_says_which_recipe_each_set_chose() -> None:
    words = _chosen(("one", "two"), 2, [Recipe(steps=0), Recipe(steps=0), Recipe(steps=0, directions=32), Recipe()])
    assert "one: 2 × closed form, categories 0.5, 64 directions; two: 1 × closed form" in words
    assert "1 × 150 steps from closed form" in words


def test_shuffled_pairs_keep_their_rows() -> None:
    pairs = two_sets().pairs
    other = shuffled(pairs, 0)
    assert all((other.rows[modality] == rows).all() for modality, rows in pairs.rows.items())
    assert (other.concept["text"] != pairs.concept["text"]).mean() > 0.9


def test_rotation_of_itq_keeps_lengths() -> None:
    pairs = two_sets().pairs
    turned = itq(cca(pairs, "image", "text"), pairs, 0, rounds=3)
    width = min(64, turned.space.maps["text"].shape[1])
    product = turned.rotation[:, :width].T @ turned.rotation[:, :width]
    assert np.abs(product - np.eye(width)).max() < 1e-4


def test_rows_are_joined_by_number() -> None:
    left, right = joined(np.array([0, 1, 1]), np.array([1, 0, 1]))
    assert sorted(zip(left.tolist(), right.tolist(), strict=True)) == [(0, 1), (1, 0), (1, 2), (2, 0), (2, 2)]


def test_the_root_of_a_name_leaves_out_who() -> None:
    def root(name: str) -> str:
        return Concept(name, "", {}, {"en": name}).root

    assert root("man farmer: man, tractor") == root("woman farmer") == root("A farmer.") == "farmer"
    assert root("woman") == "woman"


def test_missing_data_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fetch, "HOME", tmp_path / "none")
    with pytest.raises(AssetError, match=r"python -m mmcache\.lab\.fetch"):
        fetch.PACKAGES["stamps"].folder()


def test_what_is_fetched_is_compared_with_its_pin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fetch, "HOME", tmp_path)

    def download(package: fetch.Package, work: Path) -> Path:
        (work / "a.tgz").write_bytes(b"something else")
        return work / "a.tgz"

    monkeypatch.setattr(fetch, "_download", download)
    with pytest.raises(AssetError, match="not the pinned"):
        fetch.fetch(fetch.PACKAGES["noto"])
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_package_and_a_missing_client_are_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch.main(["nothing"]) == 3
    monkeypatch.setattr(fetch, "HOME", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fetch.main(["noto"]) == 3
    assert "install npm" in capsys.readouterr().err


def test_the_page_has_every_method(answers: list[Answer]) -> None:
    from mmcache.lab.plot import svg

    table = USHashTable()
    table._answers = answers
    result = Result("ushash", False, (0,), (), (), tuple(_rows(answers)))
    assert table.pages(result)["csv"].count("\n") > len(METHODS) * 6
    assert "mAP@10" in svg(table, result)
