"""What a tracer calls hot is brought to memory: nothing is counted, and no key leads to what is not stored for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mmcache import Cache
from mmcache.model.key import PART_BYTES, Key


def refused() -> str:
    raise LookupError("computed")


def test_heat_counts_nothing_and_a_made_up_key_finds_nothing(tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        mine = cache.key("a", modality="text", signature="1", tenant="one")
        cache.get_or_compute(mine, lambda: "of one")
    with Cache(tmp_path) as cache:
        assert cache.key("a", modality="text", signature="1", tenant="one") == mine
        other = cache.key("a", modality="text", signature="1", tenant="two")
        crossed = Key(other.scope, mine.digest, mine.region)  # the other tenant's scope, this one's content
        unknown = Key(os.urandom(PART_BYTES), mine.digest, mine.region)
        cache.answers.heat([mine, other, crossed, unknown])
        assert (cache.stats().hits, cache.stats().misses) == (0, 0)
        assert cache.peek(mine) == "of one"
        assert [cache.peek(key) for key in (other, crossed, unknown)] == [None] * 3
        for key in (other, crossed):
            with pytest.raises(LookupError):
                cache.get_or_compute(key, refused)
