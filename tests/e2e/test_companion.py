"""A dashboard beside a proxy: killed, it comes back where it was; ended, it stays so; it does not try for ever."""

from __future__ import annotations

import json
import logging
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("duckdb", reason="the dashboard's extra is not installed: pip install 'mmcache[dashboard]'")
pytest.importorskip("starlette")
pytest.importorskip("opentelemetry.proto")

from tests.patience import until

from mmcache.cli.companion import companion

pytestmark = pytest.mark.slow


def answers(page: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{page}/healthz", timeout=30) as reply:
            return bool(json.load(reply)["status"] == "ok")
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def commands(store: Path) -> tuple[list[str], Callable[[dict[str, Any]], list[str]]]:
    def at(place: str) -> list[str]:
        return ["dashboard", "--otlp", place, "--store", str(store), "--json"]

    return at("127.0.0.1:0"), lambda told: at(urlsplit(told["otlp"]).netloc)


def said(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return sum(words in record.getMessage() for record in caplog.records)


def test_a_killed_one_comes_back_at_its_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    command, again = commands(tmp_path / "traces.duckdb")
    with companion(command, again=again, pauses=(0.01, 0.01, 0.01)) as told:
        os.kill(told["pid"], signal.SIGKILL)
        until(lambda: said(caplog, "has died (-9); again"), "its death is said")
        until(lambda: answers(told["page"]), "it answers again")
    assert not answers(told["page"])
    assert said(caplog, "has died") == 1


def test_one_that_cannot_come_back_stays_dead(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    command, _ = commands(tmp_path / "traces.duckdb")
    broken = ["dashboard", "--otlp", "nonsense:port", "--json"]
    with companion(command, again=lambda _: broken, pauses=(0.01, 0.01)) as told:
        os.kill(told["pid"], signal.SIGKILL)
        until(lambda: said(caplog, "has died 3 times"), "it is given up")
    assert said(caplog, "did not start: ") == 2


def test_one_that_was_ended_is_left_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    command, again = commands(tmp_path / "traces.duckdb")
    with caplog.at_level(logging.INFO, "mmcache.cli"), companion(command, again=again, pauses=(0.01,)) as told:
        os.kill(told["pid"], signal.SIGTERM)
        until(lambda: said(caplog, "was ended, and is not started again"), "it is left alone")
        assert not answers(told["page"])


def test_the_end_does_not_wait_for_a_pause(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    command, again = commands(tmp_path / "traces.duckdb")
    with companion(command, again=again, pauses=(3600.0,)) as told:
        os.kill(told["pid"], signal.SIGKILL)
        until(lambda: said(caplog, "again in 3600 s"), "it waits")
    assert not answers(told["page"])
