"""RAGFlow's door against hostile messages, and against functions of its caller's that fail."""

from __future__ import annotations

import pytest

pytest.importorskip("ragflow_sdk")

from ragflow_sdk import RAGFlow
from tests.unit.integrations.ragflow_server import serving

from mmcache import Cache
from mmcache.integrations.ragflow import CachedRetrieval, receive, sign
from mmcache.integrations.ragflow.webhook import LARGEST_BYTES

SECRET, NOW = "sixteen characters", 1_800_000_000.0


@pytest.mark.parametrize("opening", [b"[", b'{"a":'], ids=["lists", "objects"])
@pytest.mark.parametrize("head", [b"", b'{"x":', b'{"event":"dataset.changed","dataset_id":'])
def test_a_deeply_nested_message_is_refused(head: bytes, opening: bytes) -> None:
    body = head + opening * ((LARGEST_BYTES - len(head)) // len(opening))
    with Cache(memory="1MiB") as cache:
        headers = {"x-mmcache-signature": sign(body, SECRET, NOW)}
        assert receive(body, headers, SECRET, cache, NOW)[0] == 400


def test_a_version_that_cannot_be_told_costs_a_hit_and_no_search() -> None:
    def version() -> str:
        raise KeyError("not there")

    with serving() as stage, Cache(memory="1MiB") as cache:
        stage.add("manual", "one", "press the red button", NOW - 1000)
        retrieve = CachedRetrieval(RAGFlow("key-a", stage.address), cache, version=version)
        for count in 1, 2:
            assert [chunk.id for chunk in retrieve(["manual"], question="press")] == ["chunk-one"]
            assert len(stage.asked) == count
