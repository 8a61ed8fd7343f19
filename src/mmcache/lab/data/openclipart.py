"""OpenClipart (public domain): drawings with the title and description that their authors gave them."""

from __future__ import annotations

import html
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from PIL import Image

from mmcache.lab.data.concepts import Concept, opened
from mmcache.lab.fetch import PACKAGES

MOST_PIXELS = 4_000_000
"""Larger drawings are left out: decoding them takes longer than encoding."""
FEWEST = 4
"""Concepts of a category; a smaller one counts as its parent folder."""
NO_CATEGORY = frozenset(("unsorted", "special"))


@cache
def openclipart() -> tuple[Concept, ...]:
    """One concept a title, and its first picture: cards and stars come by the dozen. Raises `AssetError`.

    Category = the first two folders. Drawings without a title, and huge ones, are left out.
    """
    home = PACKAGES["openclipart"].folder() / "usr/share/openclipart/png"
    same: defaultdict[str, list[tuple[Path, str]]] = defaultdict(list)
    for path in sorted(home.rglob("*.png")):
        if path.relative_to(home).parts[0] not in NO_CATEGORY and (words := _words(path)):
            title, description = words
            same[re.sub(r"[\W\d_]+", " ", title.lower()).strip()].append((path, f"{title}: {description}".strip(": ")))
    same.pop("", None)
    folders = {name: found[0][0].relative_to(home).parts[:-1][:2] for name, found in same.items()}
    category = _categories(folders)
    return tuple(
        Concept(name, category[name], {"": opened(found[0][0])}, {"en": found[0][1]})
        for name, found in same.items()
        if category[name]
    )


def _categories(folders: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Folders with enough concepts in them; what is left over at the top has no category."""
    where = dict(folders)
    for depth in range(max(map(len, folders.values()), default=0), 0, -1):
        sizes = Counter(where.values())
        for name, parts in where.items():
            if len(parts) == depth and sizes[parts] < FEWEST:
                where[name] = parts[:-1]
    return {name: "/".join(parts) for name, parts in where.items()}


def _words(path: Path) -> tuple[str, str] | None:
    """Title and description out of the PNG's text chunks; None without a title that has letters."""
    with path.open("rb") as stream:
        width, height = struct.unpack(">16xII", stream.read(24))
    if width * height > MOST_PIXELS:
        return None
    with Image.open(path) as picture:
        facts = picture.info
    text = {key: html.unescape(str(value)).strip() for key, value in facts.items() if isinstance(key, str)}
    title, description = text.get("Title", ""), text.get("Description", "")
    title = title.replace("_", " ")
    if not re.search(r"[^\W\d_]{3}", title) or "@" in title:
        return None
    return title, "" if "@" in description or "http" in description else description[:300]
