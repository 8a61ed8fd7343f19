"""The rows of the searches: what is exact is called so, and nothing is left out."""

from __future__ import annotations

import pytest

from mmcache.lab import near_speed, near_vectors
from mmcache.lab.table import silent

pytest.importorskip("faiss", reason="needs faiss-cpu, of the extra `peers`")
pytest.importorskip("usearch", reason="needs usearch, of the extra `peers`")


def test_rows_of_codes() -> None:
    rows = {row.id: row for row in near_speed._codes(6000, True, [0], silent)}
    for kind in ("near", "random"):
        for k in (1, 10):
            start = f"near/codes-6k/{kind}/k{k}"
            assert rows[f"{start}/ours"].unit == "ns"
            for peer in ("usearch-exact", "faiss-flat", "faiss-multihash", "usearch-hnsw"):
                assert rows[f"{start}/{peer}"].target == 1.0
    assert rows["near/codes-6k/near/k1/faiss-multihash/recall"].ours == 100  # it finds all up to 7 bits
    assert rows["near/codes-6k/near/k1/usearch-hnsw/recall"].ours is not None
    assert "near/codes-6k/near/k1/faiss-flat/recall" not in rows


def test_edits_are_edits() -> None:
    text = "The value of a name is the object that it is bound to."
    edits = [near_vectors._edited(text, n) for n in range(4)]
    assert len({text, *edits}) == 5
    assert len(near_vectors._sentences()) > 500
