"""Table `semantic`: its rows and its drawing, on a small made-up corpus."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from mmcache.lab.semantic_flow import calls
from mmcache.lab.semantic_rows import paraphrases
from mmcache.lab.semantic_words import Corpus
from mmcache.lab.table import Result, Row, silent
from mmcache.lab.table_semantic import SemanticTable


def corpus() -> Corpus:
    """Forty meanings far apart, eight wordings of each close together."""
    draw = np.random.default_rng(0)
    centres = np.repeat(draw.standard_normal((40, 16)), 8, axis=0)
    vectors = (centres + 0.1 * draw.standard_normal(centres.shape)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    letters = "abcdefgh"
    texts = tuple(
        sorted(f"read sensor {chr(97 + m % 26)}{m // 26 * 'x'} {letters[w]}" for m in range(40) for w in range(8))
    )
    stream = tuple(int(place) for place in draw.permutation(320))
    return Corpus(texts, vectors, tuple(place // 8 for place in range(320)), stream)


def test_rows_on_words_and_their_drawing() -> None:
    rows = paraphrases("household", corpus(), (0, 1), (0.05,), {}, silent)
    found = {row.id: row.ours for row in rows}
    assert found["paraphrase/household/5%/ours/wrong"] is not None
    assert found["paraphrase/household/5%/global-allowed/hits"] is not None
    wrong = Row.of("pictures/ours/blind", "", "wrong hits", "lower", 0.0, target=0.0)
    result = Result("semantic", True, (0, 1), (), (), (*rows, wrong))
    figure = Figure()
    SemanticTable().plot(result, figure)
    assert len(figure.axes) == 2


def test_equal_and_nearly_equal_questions_that_come_at_once_are_computed_once() -> None:
    assert calls(near=False, repeats=1) == [1]
    assert calls(near=True, repeats=1)[0] <= 2  # now and then one is drawn for a check
