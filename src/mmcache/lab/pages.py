"""Real long texts as page pictures, and their revisions: documents for the lab."""

from __future__ import annotations

from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mmcache.lab import data

LINES = 56
"""Of text on a page."""
SIZE = (680, 880)
"""Pixels of a page."""

Document = tuple[str, ...]
"""Lines."""


def documents(count: int) -> list[Document]:
    """The first `count` long chapters of Python's reference manual, at most six pages each."""
    chapters = list(data.documents().values())[:count]
    return [tuple(chapter.splitlines()[: 6 * LINES]) for chapter in chapters]


def corrected(document: Document, random: np.random.Generator) -> Document:
    """One line is reworded; every other line stays where it is."""
    place = int(random.choice([number for number, line in enumerate(document) if line.strip()]))
    words = document[place].split()
    return (*document[:place], " ".join([*words[1:], words[0].capitalize()]), *document[place + 1 :])


def extended(document: Document, random: np.random.Generator) -> Document:
    """A copy of a line is inserted somewhere; all that follows moves down, over the page breaks."""
    place = int(random.integers(len(document)))
    return (*document[:place], f"Note: {document[place].strip()}", *document[place:])


def pages(document: Document) -> list[Image.Image]:
    """Its pages as pictures of `SIZE`, black on white."""
    return [_page(document[start : start + LINES]) for start in range(0, len(document), LINES)]


@cache
def _page(lines: Document) -> Image.Image:
    page = Image.new("RGB", SIZE, "white")
    draw = ImageDraw.Draw(page)
    font = ImageFont.load_default(13)
    for number, line in enumerate(lines):
        draw.text((36, 30 + 14.6 * number), line, "black", font=font)
    return page
