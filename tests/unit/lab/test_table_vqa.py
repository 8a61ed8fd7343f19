"""Table `vqa`, on few pictures."""

from __future__ import annotations

import pytest

from mmcache.lab.table import silent
from mmcache.lab.table_vqa import VQATable
from mmcache.model.errors import AssetError


@pytest.mark.slow
def test_the_model_answers_held_out_questions_and_looks_at_the_shape() -> None:
    try:
        found = VQATable().run(quick=True, seeds=(0,), progress=silent)
    except AssetError as error:
        pytest.skip(str(error))
    rows = {row.id: row.ours or 0.0 for row in found.rows}
    assert rows["answers/all"] > rows["question-only/all"] + 20
    assert rows["answers/all"] > rows["shuffled/all"] + 20
    assert rows["pointing/hit"] > 3 * rows["pointing/chance"]
    assert rows["triples/overlap"] > 2 * rows["triples/another"]
    assert rows["weights"] < 10
