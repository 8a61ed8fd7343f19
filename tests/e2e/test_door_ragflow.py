"""RAGFlow's door, end to end: its real SDK in two processes, a webhook in a third.

RAGFlow itself is no package: a server on loopback stands in for its HTTP API (see `ragflow_server.py`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ragflow_sdk")

from tests.unit.integrations.ragflow_server import serving

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
TELL = """
import json, time
from mmcache import Cache
from mmcache.integrations.ragflow import receive, sign

body = json.dumps({"event": "document.changed", "id": "1", "dataset_id": "manual", "document_ids": ["one"]}).encode()
secret, now = "a secret of the webhook", time.time()
with Cache("cache") as cache:
    print(json.dumps(receive(body, {"x-mmcache-signature": sign(body, secret, now)}, secret, cache, now)))
"""


def run(folder: Path, script: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_retrieval_hits_after_a_restart_and_a_webhook_ends_that(tmp_path: Path) -> None:
    with serving() as stage:
        stage.add("manual", "one", "press the red button", time.time() - 3600)
        first = run(tmp_path, ASK, stage.address)
        assert [(kind, row["id"]) for kind, row in first] == [("Chunk", "chunk-one")]
        assert run(tmp_path, ASK, stage.address) == first
        assert len(stage.asked) == 1
        stage.chunks[0]["content"] = "press the green button"  # edited by hand: no count and no time moves
        assert run(tmp_path, ASK, stage.address) == first
        assert run(tmp_path, TELL) == [200, {"status": "ok", "dropped": 0}]
        assert run(tmp_path, ASK, stage.address)[0][1]["content"] == "press the green button"
        assert len(stage.asked) == 2
