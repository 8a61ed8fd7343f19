"""Every benchmark and every table runs from the command line on its quick input and prints what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mmcache import plugins

BENCHMARKS = sorted((Path(__file__).resolve().parents[2] / "benchmarks").glob("[!_]*.py"))
ROW = ["id", "metric", "unit", "better", "published", "target", "ours", "spread", "met"]


def page_of(words: list[str]) -> dict[str, Any]:
    command = [sys.executable, *words, "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode == 3 and '"AssetError"' in done.stdout:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    page: dict[str, Any] = json.loads(done.stdout)
    assert list(page) == ["name", "quick", "seeds", "real", "simulated", "rows"]
    assert page["quick"]
    assert page["real"]
    assert page["rows"]
    assert all(list(row) == ROW for row in page["rows"])
    assert any(row["ours"] is not None for row in page["rows"])
    return page


@pytest.mark.slow
@pytest.mark.parametrize("script", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_runs(script: Path) -> None:
    page = page_of([str(script)])
    assert page["name"] == f"bench-{script.stem}"
    exact = {row["id"]: row["met"] for row in page["rows"] if row["id"] in ("computes/ours", "import/heavy")}
    assert all(exact.values()), "counts, unlike times, must always reach their targets"


@pytest.mark.slow
@pytest.mark.parametrize("name", plugins.names("lab"))
def test_a_table_runs(name: str) -> None:
    assert page_of(["-m", "mmcache.cli", "lab", "run", name])["name"] == name


def test_every_benchmark_ends_in_the_frame() -> None:
    assert {"disk", "full_hit", "hit_path", "import_time", "stampede"} <= {path.stem for path in BENCHMARKS}
    assert all("sys.exit(main(" in path.read_text(encoding="utf-8") for path in BENCHMARKS)
