"""The demo's visits with a model that costs nothing: that both newcomers see the same, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from mmcache.lab.demo import foresight
from mmcache.lab.demo.manifest import Page, Walks
from mmcache.model.signature import Signature
from mmcache.prefetch.behaviour import BehaviourPrefetch
from mmcache.prefetch.status import PrefetchStatus

PAGES = 6


class Painted:
    """An encoder: a picture's mean colour, many times."""

    signature = Signature(model_version="painted 1.0")

    def load(self) -> None:
        pass

    def encode_batch(self, inputs: Sequence[Image.Image]) -> list[npt.NDArray[np.float32]]:
        return [np.full((64, 64), np.asarray(one, np.float32).mean(), np.float32) for one in inputs]


@pytest.fixture
def walks(tmp_path: Path) -> Walks:
    tours: list[tuple[Page, ...]] = []
    for tour in range(3):
        pages = []
        for page in range(PAGES):
            Image.new("RGB", (8, 8), (80 * tour, 40 * page, 7)).save(tmp_path / f"{tour}-{page}.png")
            pages.append((f"{tour}-{page}.png",))
        tours.append(tuple(pages))
    earlier = tuple(tour for tour in tours for _ in range(3))
    return Walks(earlier, tours[0], PAGES, 0.05)


def test_both_newcomers_see_the_same_and_each_lookup_counts_once(
    walks: Walks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mmcache.lab.models.ImageEncoder", Painted)
    found = foresight.run_visits(walks, tmp_path)
    assert [step.digest for step in found.without] == [step.digest for step in found.foreseen]
    assert [step.page for step in found.without] == [step.page for step in found.foreseen] == list(range(PAGES))
    assert not any(step.joined for step in found.without)
    assert not any(step.warm and step.joined for step in found.foreseen)
    assert 0 <= found.used <= found.brought + found.brought_before
    assert min(found.earlier_seconds) > 0
    assert capsys.readouterr().out.split() == [str(number + 1) for number in range(foresight.steps(walks))]


def test_counts_are_read_when_all_lookups_were_looked_at() -> None:
    def status(visits: int, under_way: int, lost: int = 0) -> PrefetchStatus:
        fields = SimpleNamespace(visits=visits, under_way=under_way, lost=lost)
        return fields  # type: ignore[return-value]

    moments = iter([status(3, 0), status(5, 1), status(4, 0, lost=1), status(9, 9)])
    assert foresight.settled(lambda: next(moments), 5).lost == 1
    assert foresight.settled(lambda: status(0, 0), 5, patience=0.0).visits == 0  # it does not wait for ever


def test_the_prefetcher_is_the_one_of_that_name() -> None:
    from mmcache.visits import chosen

    assert isinstance(chosen("behaviour"), BehaviourPrefetch)
