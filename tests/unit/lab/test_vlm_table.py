"""Table `vlm`: its parts without the models, and with them where they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.lab.captioner.bleu import bleu4
from mmcache.lab.captioner.gallery import FILE, UNSEEN, WIDTH, Gallery, pooled, save
from mmcache.lab.captioner.model import VARIANTS
from mmcache.lab.table_vlm import VLMTable, _answers, _captions
from mmcache.lab.vlm_runs import Answers, Captions, Run, zipf
from mmcache.model.errors import AssetError


def test_bleu_of_equal_sentences_and_of_strangers() -> None:
    assert bleu4(["a red circle on white ground"], ["A red circle, on white ground!"]) == pytest.approx(100)
    assert bleu4(["a b c d e"], ["v w x y z"]) == 0.0
    # by hand: 5/5, 4/4... of 5 words said, of 10 meant: only the brevity penalty is left
    assert bleu4(["a b c d e"], ["a b c d e f g h i j"]) == pytest.approx(100 * np.exp(1 - 10 / 5))
    # precisions 4/5, 3/4, 2/3, 1/2
    assert bleu4(["a b c d x"], ["a b c d e"]) == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    with pytest.raises(ValueError):
        bleu4([], [])


@given(st.lists(st.text("abc ", min_size=8, max_size=30), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_bleu_is_a_share(sentences: list[str], random: object) -> None:
    assert 0.0 <= bleu4(sentences, sentences[::-1]) <= 100.0 + 1e-9


def test_the_gallery_finds_what_looks_alike(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    tokens = random.normal(size=(3, 257, 384)).astype(np.float32)
    save(tmp_path / "g.safetensors", [pooled(one) for one in tokens], ["one", "two", "drei: ü"])
    gallery = Gallery(tmp_path / "g.safetensors")
    assert gallery.nearest(tokens[2], 2)[0] == "drei: ü"
    assert len(gallery.nearest(tokens[0], 9)) == 3
    (tmp_path / "bad").write_bytes(b"nothing")
    with pytest.raises(AssetError, match="no gallery"):
        Gallery(tmp_path / "bad").nearest(tokens[0], 1)


def test_the_committed_gallery_is_whole() -> None:
    vectors, captions = Gallery()._loaded
    assert vectors.shape == (len(captions), WIDTH)
    assert len(captions) > 1500
    assert np.allclose(np.linalg.norm(vectors, axis=1), 2**0.5, atol=1e-2)
    assert FILE.stat().st_size < 10_000_000


def test_a_stream_repeats_itself_from_a_seed() -> None:
    draws = [zipf(30, 200, np.random.default_rng(3)) for _ in range(2)]
    assert draws[0] == draws[1]
    assert len(set(draws[0])) < 30


def made() -> tuple[Captions, Answers]:
    said = {name: ["a nerd face that is clever", "a red rose in bloom"] for name in VARIANTS}
    said["ours+int4"] = ["a nerd face that is clever", "a rose"]
    runs = {name: Run([[10.0 + i, 20.0 + i]], said[name], 10**9) for i, name in enumerate(VARIANTS)}
    found = Captions(
        runs,
        ["nerd face: clever", "rose: flower, red"],
        [{"nerd", "face"}, {"rose"}],
        {"ours": 0.0, "ours+int4": 0.3},
        0.5,
    )
    names = ("none", "ours", "ours+int4", "ours+answers")
    told = Answers({name: Run([[1.0, 2.0]], ["red", "no"]) for name in names}, {name: [50.0] for name in names})
    return found, told


def test_rows_say_what_was_lost_and_what_was_not() -> None:
    found, told = made()
    rows = {row.id: row for row in (*_captions(found), *_answers(told))}
    assert rows["captioner/ours/bleu-lost"].ours == 0
    assert rows["captioner/none/bleu"].ours == 0
    assert rows["captioner/ours/bleu-lost"].met is None, "nothing can be lost of nothing"
    assert rows["captioner/ours/equal"].met
    assert rows["captioner/ours+int4/equal"].ours == 50
    assert rows["captioner/ours/apart"].met
    assert rows["captioner/ours+int4/apart"].ours == 0.3
    assert rows["vqa/ours/p50"].metric == "encoder output kept: P50 of a request"
    assert rows["captioner/ours+int4/same"].ours < 100  # type: ignore[operator]
    assert rows["captioner/ours/named"].ours == 100
    assert rows["captioner/ours/named-other"].ours < 100  # type: ignore[operator]
    assert rows["captioner/ours/of-none"].target == pytest.approx(639 / 1247)
    assert rows["captioner/ours/memory-of-none"].met is False, "a cache takes no weights away"
    assert rows["vqa/ours/same"].ours == 100
    assert json.dumps([row.as_json() for row in rows.values()])


@pytest.mark.slow
def test_the_table_runs() -> None:
    try:
        result = VLMTable().run(True, (0,), lambda *_: None)
    except AssetError as missing:
        pytest.skip(str(missing))
    rows = {row.id: row for row in result.rows}
    assert rows["captioner/ours/apart"].ours == 0.0
    assert rows["captioner/ours/bleu-lost"].ours == 0.0
    assert rows["captioner/ours/encoded"].ours < rows["captioner/none/encoded"].ours  # type: ignore[operator]
    assert rows["vqa/ours/same"].ours == 100
    assert UNSEEN not in ("noto", "fluent")
