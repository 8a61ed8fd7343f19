"""Where the state is kept, and what a server's odd answers mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mmcache.model.errors import TierError
from mmcache.rollout.files import FileRecords
from mmcache.rollout.places import places
from mmcache.rollout.records import MemoryRecords
from mmcache.rollout.server import ServerRecords
from mmcache.tiers.valkey.replies import Down, Refusal
from mmcache.tiers.valkey.words import Request


class Answering:
    """A client whose server always says the same."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.asked: list[Request] = []

    def ask(self, requests: Sequence[Request]) -> list[Any]:
        self.asked += requests
        return [self.reply]


def test_a_server_before_the_folder_before_memory(tmp_path: Path) -> None:
    records, spare = places(tmp_path, Answering(None), "p:")
    assert isinstance(records, ServerRecords)
    assert isinstance(spare, FileRecords)
    assert isinstance(places(tmp_path)[0], FileRecords)
    assert isinstance(places(None)[0], MemoryRecords)
    assert places(None, Answering(None))[1] is None


def test_all_keys_are_of_one_slot_and_begin_with_the_prefix() -> None:
    client = Answering(1)
    records = ServerRecords(client, "team:")
    records.swap("clip", None, b"new")
    (request,) = client.asked
    assert request.key == b"team:{rollout}:clip"
    assert request.words[3:] == (b"team:{rollout}:clip", b"team:{rollout}", b"", b"new", "clip")


def test_an_answer_that_was_lost_is_no_conflict() -> None:
    """The client asks again after a lost connection; then the record is already what it should become."""
    records = ServerRecords(Answering(2), "p:")
    assert records.swap("clip", b"old", b"new")
    assert not records.swap("clip.report", b"old", b"new", durable=False)  # perhaps another process's: add it again
    assert not ServerRecords(Answering(0), "p:").swap("clip", b"old", b"new")


@pytest.mark.parametrize("reply", [Down("timed out"), Refusal("NOPERM no")], ids=str)
def test_no_answer_is_a_tier_error(reply: Any) -> None:
    records = ServerRecords(Answering(reply), "p:")
    for ask in (lambda: records.read("clip"), lambda: records.swap("clip", None, b"new"), records.names):
        with pytest.raises(TierError, match=str(reply)):
            ask()


def test_a_long_record_is_cut_where_it_is() -> None:
    client = Answering(memoryview(b"x"))
    assert ServerRecords(client, "p:").read("clip") == b"x"
    assert client.asked[0].words == ("GETRANGE", b"p:{rollout}:clip", 0, 1 << 16)
    assert ServerRecords(Answering(b""), "p:").read("clip") is None
