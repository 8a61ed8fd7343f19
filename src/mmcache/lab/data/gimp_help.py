"""The GIMP manual in English (GFDL): captioned figures and the text around them, from Debian's gimp-help-en."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from PIL import Image

from mmcache.lab.fetch import PACKAGES

PACKAGE = PACKAGES["gimp-help"]
LONGEST = 600
"""Characters of a passage; more than the text encoder reads anyway."""
_NUMBER = re.compile(r"^(?:Figure\s+)?[\d.]+\.?\s+")


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the manual: a document of two modalities."""

    picture: Path
    """PNG or JPEG: screenshots, drawings, photographs before and after a filter."""
    caption: str
    page: str
    """The title of its page."""
    passage: str
    """The paragraph beside it, at most `LONGEST` characters; may be empty."""

    @property
    def text(self) -> str:
        """All of its words, as a store would index them."""
        return " ".join(filter(None, (f"{self.page}.", self.caption, self.passage)))


class _Page(HTMLParser):
    """Figures and paragraphs of one page, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.title = ""
        self.found: list[tuple[str, str, str]] = []  # source of the picture, caption, paragraph after it
        self._words: list[str] = []
        self._figure: tuple[str, str] | None = None
        self._waiting: tuple[str, str] | None = None
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if self._depth:
            self._depth += tag == "div"
            if tag == "img" and self._figure is not None and not self._figure[0]:
                self._figure = (given.get("src") or "", self._figure[1])
        elif tag == "div" and given.get("class") == "figure":
            self._depth, self._figure = 1, ("", "")
        if tag in ("p", "title"):
            self._words = []

    def handle_data(self, data: str) -> None:
        self._words.append(data)

    def handle_endtag(self, tag: str) -> None:
        words = " ".join("".join(self._words).split())
        if tag == "title":
            self.title = _NUMBER.sub("", words)
        if self._depth:
            if tag == "p" and self._figure is not None and not self._figure[1]:
                self._figure = (self._figure[0], _NUMBER.sub("", words))
            if tag == "div":
                self._depth -= 1
                if not self._depth and self._figure is not None:
                    self._settle("")
                    self._waiting, self._figure = self._figure, None
        elif tag == "p" and words:
            self._settle(words)

    def _settle(self, paragraph: str) -> None:
        if self._waiting is not None:
            self.found.append((*self._waiting, paragraph[:LONGEST]))
            self._waiting = None

    def close(self) -> None:
        super().close()
        self._settle("")


@cache
def figures() -> tuple[Figure, ...]:
    """Every figure with a caption and a still picture of its own, in the order of pages. Raises `AssetError`."""
    home = PACKAGE.folder() / PACKAGE.kept[0]
    found: dict[Path, Figure] = {}
    for file in sorted(home.glob("*.html")):
        page = _Page()
        page.feed(file.read_text(encoding="utf-8"))
        page.close()
        for source, caption, passage in page.found:
            picture = home / source
            if source and caption and picture not in found and _still(picture):
                found[picture] = Figure(picture, caption, page.title, passage)
    return tuple(found.values())


def _still(picture: Path) -> bool:
    if not picture.is_file():
        return False
    with Image.open(picture) as opened:
        return not getattr(opened, "is_animated", False)
