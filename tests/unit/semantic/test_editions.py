"""`Meaning.editions`: what a key must hold of sources, for doors that make keys of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmcache import Cache
from mmcache.model.errors import TierError
from mmcache.semantic.options import SourceKind

MANUAL: tuple[SourceKind, str] = ("document", "manual")
OTHER: tuple[SourceKind, str] = ("document", "other")


def test_they_move_with_what_changed_and_with_nothing_else(tmp_path: Path) -> None:
    with Cache(tmp_path) as cache, Cache(tmp_path) as elsewhere:
        before = cache.meaning.editions([MANUAL, OTHER])
        untouched = cache.meaning.editions([OTHER])
        assert elsewhere.meaning.editions([MANUAL, OTHER]) == before
        cache.changed(*MANUAL)
        after = cache.meaning.editions([MANUAL, OTHER])
        assert after != before
        assert elsewhere.meaning.editions([MANUAL, OTHER]) == after
        assert cache.meaning.editions([OTHER]) == untouched
        assert cache.meaning.editions([MANUAL], tenant="another") != cache.meaning.editions([MANUAL])
        cache.changed(*MANUAL)
        assert cache.meaning.editions([MANUAL, OTHER]) not in (before, after)
        last = cache.meaning.editions([MANUAL, OTHER])
    with Cache(tmp_path) as again:
        assert again.meaning.editions([MANUAL, OTHER]) == last


def test_where_it_is_not_known_what_changed_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cache(memory="1MiB") as cache:

        def unknown() -> None:
            raise TierError("what other hosts say cannot be written down")

        monkeypatch.setattr(cache.below, "check_heard", unknown)
        with pytest.raises(TierError):
            cache.meaning.editions([MANUAL])
