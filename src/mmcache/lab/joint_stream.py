"""Requests for table `joint`: people ask about figures of a manual, again and again, in other words, with copies.

The figures and captions are real. How often each is asked, the wordings (templates) and the edits are made here.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image

from mmcache.lab.data.gimp_help import Figure

ZIPF_EXPONENT = 0.9
KINDS = {"repeat": 0.5, "words": 0.2, "picture": 0.2, "both": 0.1}
"""What of a request is new wording or an edited copy; shares made up."""
WORDINGS = (
    (
        "What does “{caption}” show?",
        "What is shown in “{caption}”?",
        "Can you tell me what “{caption}” shows?",
        "Please explain what “{caption}” shows.",
        "What am I looking at in “{caption}”?",
        "Describe what is to be seen in “{caption}”.",
    ),
    (
        "How do I use {page}?",
        "How can I use {page}?",
        "How is {page} used?",
        "Please tell me how to use {page}.",
        "What is the way to work with {page}?",
        "I would like to use {page}, how do I do that?",
    ),
)
"""Two questions to a figure, each in six wordings: generated paraphrases."""
EDITS = ("jpeg 75", "scaled to 1/2", "cropped by 3 %")


@dataclass(frozen=True, slots=True)
class Request:
    """One lookup."""

    picture: bytes
    """An encoded file."""
    words: str
    figure: int
    """Place of the figure that is asked about."""
    kind: str
    """See `KINDS`."""


def edited(file: bytes, edit: str) -> bytes:
    """A copy as they go round. PNG where the edit is no JPEG."""
    picture = Image.open(io.BytesIO(file)).convert("RGB")
    width, height = picture.size
    out = io.BytesIO()
    if edit.startswith("jpeg"):
        picture.save(out, "JPEG", quality=int(edit.split()[1]))
        return out.getvalue()
    if edit.startswith("scaled"):
        factor = 0.75 if edit.endswith("3/4") else 0.5
        size = max(8, round(width * factor)), max(8, round(height * factor))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    else:
        x, y = round(width * 0.03), round(height * 0.03)
        picture = picture.crop((x, y, width - x, height - y))
    picture.save(out, "PNG")
    return out.getvalue()


@cache
def _copy(figure: Figure, edit: str) -> bytes:
    file = figure.picture.read_bytes()
    return edited(file, edit) if edit else file


def requests(figures: Sequence[Figure], places: Sequence[int], count: int, seed: int) -> list[Request]:
    """`count` requests about the figures at `places`: Zipf popularity, fixed shares of kinds."""
    random = np.random.default_rng(seed)
    needs = [(place, question) for place in places for question in range(len(WORDINGS))]
    weights = np.arange(1, len(needs) + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    shares = random.permutation(weights / weights.sum())
    kinds = list(KINDS)
    found = []
    for need in random.choice(len(needs), count, p=shares):
        place, question = needs[int(need)]
        kind = kinds[int(random.choice(len(kinds), p=list(KINDS.values())))]
        wordings = WORDINGS[question]
        wording = int(random.integers(1, len(wordings))) if kind in ("words", "both") else 0
        edit = EDITS[int(random.integers(len(EDITS)))] if kind in ("picture", "both") else ""
        figure = figures[place]
        words = wordings[wording].format(caption=figure.caption, page=figure.page)
        found.append(Request(_copy(figure, edit), words, place, kind))
    return found
