"""Waves: all that was made from what changes, and whoever links meanwhile."""

from __future__ import annotations

from mmcache.refs.counted import CountedReferences
from mmcache.refs.waves import waves
from mmcache.testing import make_key

SOURCE, FEATURES, ANSWER, OTHER = map(make_key, range(4))


def test_one_wave_takes_all_and_forgets_their_links() -> None:
    references = CountedReferences()
    references.link(FEATURES, [SOURCE])
    references.link(ANSWER, [FEATURES])
    references.link(OTHER, [make_key(9)])
    assert list(waves(references, [SOURCE])) == [{SOURCE, FEATURES, ANSWER}]
    assert references.parents() == [OTHER]
    assert list(waves(references, [])) == []


def test_who_links_meanwhile_goes_in_the_next_wave_and_who_links_again_goes_again() -> None:
    references = CountedReferences()
    references.link(FEATURES, [SOURCE])
    found = []
    for wave in waves(references, [SOURCE]):
        found.append(wave)
        if len(found) == 1:
            references.link(FEATURES, [SOURCE])
            references.link(ANSWER, [SOURCE])
        elif len(found) == 2:
            references.link(OTHER, [ANSWER])
    assert found == [{SOURCE, FEATURES}, {FEATURES, ANSWER}, {OTHER}]
    assert not references.parents()
