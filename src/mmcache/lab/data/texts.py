"""Texts."""

from __future__ import annotations

from functools import cache

import msgspec

from mmcache.lab.assets import Asset

QUESTIONS = Asset(
    "easy_vqa",
    "data/train/questions.json",
    "bb67697636aed0e65631d4266824aebeae5c833b0f37ed781e20752e85617ec5",
)


@cache
def questions() -> tuple[tuple[str, int], ...]:
    """easy-VQA's 38 575 (question, number of the picture) pairs; 107 distinct questions. Raises `AssetError`."""
    rows = msgspec.json.decode(QUESTIONS.read(), type=list[tuple[str, str, int]])
    return tuple((question, picture) for question, _, picture in rows)


@cache
def paragraphs(least: int = 200, most: int = 100_000) -> tuple[str, ...]:
    """Distinct English paragraphs of `least` to `most` characters: the reference manual inside Python itself.

    They differ between Python versions.
    """
    from pydoc_data.topics import topics

    found = (" ".join(part.split()) for page in topics.values() for part in page.split("\n\n"))
    return tuple(dict.fromkeys(part for part in found if least <= len(part) <= most))


@cache
def documents(least_lines: int = 120) -> dict[str, str]:
    """Long pages of the same manual by name: documents of several screens each."""
    from pydoc_data.topics import topics

    return {name: page for name, page in sorted(topics.items()) if page.count("\n") >= least_lines}
