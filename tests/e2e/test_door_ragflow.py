"""RAGFlow's door, end to end: its real SDK in two processes, the webhook of `mmcache serve` in a third.

RAGFlow itself is no package: a server on loopback stands in for its HTTP API (see `ragflow_server.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ragflow_sdk")
pytest.importorskip("uvicorn")
pytest.importorskip("uvloop")

import requests
from tests.unit.integrations.ragflow_server import serving

from mmcache.integrations.ragflow import sign

ASK = """
import json, sys
from ragflow_sdk import RAGFlow
from mmcache import Cache
from mmcache.integrations.ragflow import CachedRetrieval

address = sys.argv[1]
with Cache("cache") as cache:
    retrieve = CachedRetrieval(RAGFlow("key-a", address), cache)
    chunks = retrieve(dataset_ids=["manual"], question="which button")
    print(json.dumps([[type(one).__name__, one.to_json()] for one in chunks]))
"""
SECRET = "a secret of the webhook"
CHANGED = {"event": "document.changed", "id": "1", "dataset_id": "manual", "document_ids": ["one"]}


def run(folder: Path, script: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def proxy(folder: Path, upstream: str) -> Iterator[str]:
    """`mmcache serve` on the same cache; its address."""
    (folder / "serve.toml").write_text('[server]\nwebhook_secret_env = "HOOK"\n')
    command = [sys.executable, "-m", "mmcache.cli", "serve", "--port", "0", "--json", "--upstream", upstream]
    process = subprocess.Popen(
        [*command, "--config", "serve.toml", "--root", "cache"], cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=os.environ | {"HOOK": SECRET},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield json.loads(line)["address"]
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def told(address: str, **headers: str) -> tuple[int, Any]:
    """The answer to the message."""
    body = json.dumps(CHANGED).encode()
    headers = headers or {"x-mmcache-signature": sign(body, SECRET, time.time())}
    answer = requests.post(f"{address}/mmcache/webhooks/ragflow", data=body, headers=headers, timeout=10)
    return answer.status_code, answer.json()


def test_retrieval_hits_after_a_restart_and_a_webhook_ends_that(tmp_path: Path) -> None:
    with serving() as stage:
        stage.add("manual", "one", "press the red button", time.time() - 3600)
        first = run(tmp_path, ASK, stage.address)
        assert [(kind, row["id"]) for kind, row in first] == [("Chunk", "chunk-one")]
        assert run(tmp_path, ASK, stage.address) == first
        assert len(stage.asked) == 1
        stage.chunks[0]["content"] = "press the green button"  # edited by hand: no count and no time moves
        assert run(tmp_path, ASK, stage.address) == first
        with proxy(tmp_path, stage.address) as address:
            assert told(address, authorization="Bearer no")[0] == 401
            assert told(address) == (200, {"status": "ok", "dropped": 0})
            assert told(address) == (200, {"status": "duplicate", "dropped": 0})
        assert run(tmp_path, ASK, stage.address)[0][1]["content"] == "press the green button"
        assert len(stage.asked) == 2
