"""The table `signature`: what its figures mean, and that its parts do what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mmcache.lab.signature_models import (
    DENSE,
    ContentKeyed,
    Encoders,
    Floats,
    alike,
    read,
    shaped,
    signature,
    trigrams,
)
from mmcache.lab.signature_runs import Run, Scale, Served, Switch, dip, late, steady
from mmcache.lab.signature_worker import SERVED, Plan, one
from mmcache.lab.table_signature import SignatureTable
from mmcache.model.errors import AssetError

MEAN = np.full(DENSE, 0.01, np.float32)


def dense(seed: int) -> Floats:
    found = np.random.default_rng(seed).normal(size=DENSE).astype(np.float32)
    return np.asarray(found / np.linalg.norm(found), np.float32)


def test_the_versions_differ_as_they_say() -> None:
    one, two, weights = (shaped(version, dense(1), "a text", MEAN) for version in ("v1", "v2", "v1b"))
    assert (one["embedding"].shape, two["features"].shape) == ((384,), (512,))
    assert weights["embedding"].shape == (384,)
    assert read("v1", one) != read("v1b", weights)
    assert alike(one, two) == pytest.approx(1.0)
    with pytest.raises(KeyError):
        read("v2", one)
    with pytest.raises(KeyError):
        read("v1", two)
    assert len({signature(version).digest for version in ("v1", "v2", "v1b")}) == 3
    assert signature("v1").model_version == signature("v2").model_version  # only the schema tells them apart
    assert np.linalg.norm(trigrams("a text")) == pytest.approx(1.0)


def test_the_cache_keyed_by_content_shares_a_folder(tmp_path: Path) -> None:
    calls = []

    def compute(text: str) -> dict[str, Floats]:
        calls.append(text)
        return {"embedding": dense(1)}

    first = ContentKeyed(tmp_path).get_or_compute("x", compute)
    other = ContentKeyed(tmp_path)
    for _ in range(2):
        assert np.array_equal(other.get_or_compute("x", compute)["embedding"], first["embedding"])
    assert calls == ["x"]


def rows(hits: list[bool], new: list[bool] | None = None) -> Served:
    found = np.zeros(len(hits), SERVED)
    found["at"] = np.arange(len(hits)) * 1_000_000
    found["hit"] = hits
    found["new"] = [False] * len(hits) if new is None else new
    return found


def test_a_dip_is_as_deep_and_as_long_as_it_is() -> None:
    served = rows([True] * 500 + [False] * 50 + [True] * 450)
    since = 500 * 1_000_000
    usual = steady(served, since, 0)
    assert usual == 1.0
    depth, length = dip(served, since, 1 << 62, usual)
    assert depth == pytest.approx(50.0)  # 50 of the worst 100
    assert length == 39 + 100  # the last window with more than 10 misses begins at the 40th of them
    assert dip(served, 600 * 1_000_000, 1 << 62, usual) == (0.0, 0)
    assert dip(served, 2000 * 1_000_000, 1 << 62, usual) == (0.0, 0)


def test_late_requests_began_after_the_switch() -> None:
    served = rows([True] * 10, [False] * 4 + [True, False, True, True, True, True])
    count, ms = late(served, 2_500_000, 1 << 62, new=True)
    assert count == 2
    assert ms == pytest.approx(2.5)
    assert late(served, 5_500_000, 1 << 62, new=True) == (0, 0.0)
    run = Run((served, served), (Switch("promote", 1),), 0)
    assert len(run.all) == 20
    assert list(run.all["at"]) == sorted(run.all["at"])


def test_a_request_is_judged_by_the_version_that_the_application_has() -> None:
    models = Encoders(MEAN)
    output = shaped("v1", dense(1), "x", MEAN)
    scores = {"v1": {"x": read("v1", output)}, "v2": {"x": 1.0}, "v1b": {"x": 2.0}}
    plan = Plan("gate", "", ("v1", "v2"), ["x"], [], scores, MEAN.tobytes(), 1, 1, 1.0, 1.0, [0.5], 0)

    def judged(version: str) -> list[bool]:
        return list(one(plan, lambda text, session, elapsed: (version, output), models, "x", "s", 0.0)[2:])

    assert judged("v1") == [False, True, False, False, False]
    assert judged("v1b") == [False, True, True, False, False]
    assert judged("v2") == [True, True, False, True, False]

    def fails(text: str, session: str, elapsed: float) -> tuple[str, dict[str, Floats]]:
        raise RuntimeError("no")

    assert one(plan, fails, models, "x", "s", 0.0)[6] is True


@pytest.mark.slow
def test_a_small_table_has_no_crash_and_no_wrong_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmcache.lab.table_signature.QUICK", Scale(10, 2, 2, 50.0, 2.0))
    try:
        result = SignatureTable().run(True, (0,), lambda what, done, total: None)
    except AssetError as missing:
        pytest.skip(str(missing))
    found = {row.id: row for row in result.rows}
    for name in ("schema/gate/crashes", "schema/gate/wrong", "weights/gate/wrong", "rollout/crashed", "rollout/wrong",
                 "failing/failed", "stepwise/wrong"):  # fmt: skip
        assert found[name].ours == 0
    assert (found["schema/content/crashes"].ours or 0) > 0
    assert (found["weights/content/wrong"].ours or 0) > 0
    assert found["failing/held"].ours == 100
