"""What `helm test` runs, in front of a real proxy with the chart's configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.helm_stage import models
from tests.unit.deploy.chart import container, environment, needs_helm, rendered

pytest.importorskip("uvicorn")
pytestmark = needs_helm


@contextmanager
def proxy(folder: Path, upstream: str) -> Iterator[str]:
    """As the chart starts it, at a free port of this machine, with no cluster and no dashboard; its address."""
    found = rendered("proxy-alone")
    deployment = found.one("Deployment", "proxy")
    file = folder / "mmcache.toml"
    file.write_text(found.one("ConfigMap", "proxy")["data"]["mmcache.toml"], "utf-8")
    words = [word.replace("/etc/mmcache/mmcache.toml", str(file)) for word in container(deployment)["args"]]
    words += ["--host", "127.0.0.1", "--port", "0", "--upstream", upstream]
    process = subprocess.Popen(
        [sys.executable, "-m", "mmcache.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=os.environ | environment(found, deployment) | {"MMCACHE_ROOT": str(folder / "cache")},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def reached(proxy: str, dashboard: str) -> subprocess.CompletedProcess[str]:
    each = container(rendered().one("Pod", "test"))
    asked = {entry["name"]: entry["value"] for entry in each["env"]}
    assert asked["UPSTREAM"].endswith("/readyz")
    program, *words = each["command"]
    assert program == "python"
    told = {"PROXY": f"{proxy}/healthz", "UPSTREAM": f"{proxy}/readyz", "DASHBOARD": dashboard}
    return subprocess.run(
        [sys.executable, *words, *each["args"]], env=os.environ | told, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


def test_it_says_what_answers_and_what_does_not(tmp_path: Path) -> None:
    with models() as upstream:
        (tmp_path / "one").mkdir()
        with proxy(tmp_path / "one", upstream) as address:
            done = reached(address, f"{upstream}/healthz")
            assert done.returncode == 0, done.stdout
            assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["proxy", "upstream", "dashboard"]
    (tmp_path / "two").mkdir()
    with proxy(tmp_path / "two", upstream) as address:
        done = reached(address, f"{upstream}/healthz")
        assert done.returncode == 2
        assert "the upstream cannot be reached" in done.stdout
