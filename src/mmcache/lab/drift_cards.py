"""Cards: a real easy-VQA drawing above a printed line, with questions whose right answers are known.

The drawings, their questions and answers are the package's. The line and its numbers are drawn here (fixed seed), and
every tenth card repeats another's drawing under another line: twins that a key of coarse features would mix up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import msgspec
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from mmcache.lab.assets import folder
from mmcache.lab.data.pictures import shapes
from mmcache.lab.data.texts import QUESTIONS

WIDE, HIGH = 320, 48
"""Pixels of the printed line."""
DRAWN = 128
SMALL = 80, 44
"""What the network sees."""
TWIN_EVERY = 10
WORDS = "Invoice", "Receipt", "Parcel", "Ticket", "Account", "Order", "Voucher", "Licence"
LINE_QUESTIONS = "what does the printed line say?", "which number is printed below the drawing?"


@dataclass(frozen=True)
class Card:
    """One picture, and what is true of it."""

    drawing: int
    line: str
    shape: str
    colour: str

    def strip(self) -> Image.Image:
        """The printed line, 320 × 48 RGB."""
        page = Image.new("RGB", (WIDE, HIGH), "white")
        ImageDraw.Draw(page).text((6, 10), self.line, font=_font(), fill="black")
        return page

    def picture(self) -> Image.Image:
        """320 × 176 RGB."""
        page = Image.new("RGB", (WIDE, DRAWN + HIGH), "white")
        with Image.open(shapes()[self.drawing]) as drawing:
            page.paste(drawing.convert("RGB").resize((DRAWN, DRAWN), Image.Resampling.BICUBIC), (96, 0))
        page.paste(self.strip(), (0, DRAWN))
        return page


@cache
def _font() -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(folder("matplotlib") / "mpl-data/fonts/ttf/DejaVuSans.ttf"), 22)


@cache
def asked() -> tuple[tuple[str, str, int], ...]:
    """easy-VQA's (question, answer, drawing)."""
    return tuple(msgspec.json.decode(QUESTIONS.read(), type=list[tuple[str, str, int]]))


@cache
def labels() -> dict[int, tuple[str, str]]:
    """Drawing → (shape, colour), from the answers to the questions that ask for them."""
    found: dict[int, dict[str, str]] = {}
    for _, answer, drawing in asked():
        if answer in ("yes", "no"):
            continue
        kind = "shape" if answer in ("circle", "rectangle", "triangle") else "colour"
        found.setdefault(drawing, {})[kind] = answer
    return {drawing: (one["shape"], one["colour"]) for drawing, one in found.items() if len(one) == 2}


def cards(count: int, seed: int) -> list[Card]:
    """`count` cards; every tenth is a twin of the one before it."""
    rng = np.random.default_rng(seed)
    known = labels()
    drawings = rng.permutation(sorted(known))[:count]
    made: list[Card] = []
    for place, drawing in enumerate(drawings):
        chosen = made[-1].drawing if place % TWIN_EVERY == TWIN_EVERY - 1 else int(drawing)
        word = WORDS[int(rng.integers(len(WORDS)))]
        line = f"{word} {rng.integers(1000, 10_000)} total {rng.integers(1, 100)}.{rng.integers(100):02d}"
        made.append(Card(chosen, line, *known[chosen]))
    return made


def pixels(pictures: list[Image.Image], brightness: float = 1.0) -> npt.NDArray[np.float32]:
    """float32 [n, 3, 44, 80] in 0…1, darkened or brightened by the factor `brightness`."""
    small = [np.asarray(one.resize(SMALL, Image.Resampling.BOX), np.float32) for one in pictures]
    return np.ascontiguousarray(np.clip(np.stack(small) / 255 * brightness, 0, 1).transpose(0, 3, 1, 2), np.float32)


@dataclass(frozen=True)
class Request:
    """A card by its place in the catalogue, and a question."""

    card: int
    question: str

    def truth(self, catalogue: list[Card]) -> str:
        """The right answer."""
        card = catalogue[self.card]
        if self.question in LINE_QUESTIONS:
            return card.line
        return f"{card.shape} {card.colour}"  # enough to answer any of easy-VQA's questions about a drawing


def requests(catalogue: list[Card], count: int, seed: int) -> list[Request]:
    """Cards by Zipf's law (exponent 0.9), each asked one of four questions: two of easy-VQA's, two on its line."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, len(catalogue) + 1) ** 0.9
    chosen = rng.choice(len(catalogue), count, p=shares / shares.sum())
    own: dict[int, list[str]] = {}
    for question, _, drawing in asked():
        own.setdefault(drawing, []).append(question)
    made = []
    for card in chosen:
        options = [*own[catalogue[card].drawing][:2], *LINE_QUESTIONS]
        made.append(Request(int(card), options[int(rng.integers(len(options)))]))
    return made
