"""Question-aware tolerance: units of one product differ in nothing but the serial number on their labels.

What the product is, is the same for each unit, so a near picture's answer serves; what the label says is not. Pictures
are drawn by us: no public set has serial numbers that change on otherwise equal pictures.
"""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

from PIL import Image, ImageDraw, ImageFont

from mmcache.cache import Cache
from mmcache.lab.semantic_contender import TextVector
from mmcache.lab.semantic_flow import EMBEDDER, MEMORY, MODEL
from mmcache.semantic.prompt import Prompt
from mmcache.semantic.settings import Semantic

Topic = Literal["kind", "serial"]
SIDE = 1024
"""Pixels: the label's print is small in the picture, so a sketch of it cannot tell the numbers apart."""
KINDS = ("disc", "box", "cone", "barrel", "pyramid", "ring")
COLOURS = ("firebrick", "steelblue", "seagreen", "goldenrod", "slategray", "indigo", "sienna", "teal")
ASKED: dict[Topic, tuple[str, ...]] = {
    "kind": (
        "what kind of object is it?", "what object is this?", "which kind of thing is shown?", "what is this object?",
    ),
    "serial": (
        "read the serial number", "what is the serial number?", "which serial number is on the label?",
        "what does the label say?",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit of a product."""

    kind: str
    colour: str
    serial: int

    def answer(self, topic: Topic) -> str:
        """The right one."""
        return self.kind if topic == "kind" else str(self.serial)


@lru_cache(4096)
def drawn(unit: Unit, quality: int | None = None) -> bytes:
    """A PNG, or a JPEG of that quality, 1024 × 1024 RGB: the object, and below it a label with the number."""
    image = Image.new("RGB", (SIDE, SIDE), "white")
    pen = ImageDraw.Draw(image)
    match unit.kind:
        case "disc":
            pen.ellipse((232, 120, 792, 680), fill=unit.colour)
        case "box":
            pen.rectangle((232, 160, 792, 680), fill=unit.colour)
        case "cone":
            pen.polygon(((512, 80), (240, 680), (784, 680)), fill=unit.colour)
        case "barrel":
            pen.rounded_rectangle((312, 80, 712, 700), 160, fill=unit.colour)
        case "pyramid":
            pen.polygon(((512, 80), (192, 480), (512, 700), (832, 480)), fill=unit.colour)
        case _:
            pen.ellipse((232, 120, 792, 680), outline=unit.colour, width=112)
    pen.rectangle((450, 820, 560, 846), outline="black")
    pen.text((456, 825), f"SN {unit.serial}", fill="black", font=ImageFont.load_default(14))
    buffer = io.BytesIO()
    if quality is None:
        image.save(buffer, "PNG")
    else:
        image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class Request:
    """A question about a unit's picture."""

    topic: Topic
    text: str
    unit: Unit
    quality: int | None
    """Of the JPEG that it comes as; None = PNG."""


def stream(seed: int, requests: int, products: int = 6, units: int = 25) -> list[Request]:
    """Both questions, half and half, about units drawn evenly; a third of the pictures come re-encoded.

    Serial numbers of one product follow each other, so most pairs differ in one or two digits.
    """
    draw = random.Random(seed)
    pairs = [(kind, colour) for kind in KINDS for colour in COLOURS]
    chosen = draw.sample(pairs, products)
    firsts = [draw.randrange(10_000, 90_000) for _ in chosen]
    found = []
    for _ in range(requests):
        place = draw.randrange(products)
        topic: Topic = draw.choice(("kind", "serial"))
        unit = Unit(*chosen[place], firsts[place] + draw.randrange(units))
        found.append(Request(topic, draw.choice(ASKED[topic]), unit, draw.choice((None, None, 90))))
    return found


@dataclass
class Found:
    """Of one topic."""

    asked: int = 0
    exact: int = 0
    near: int = 0
    wrong: int = 0
    """Of the near hits."""


def run(requests: Sequence[Request], text: TextVector, max_error: float) -> dict[Topic, Found]:
    """The product on the stream; both topics share one promise, so only what was learned tells them apart."""
    found: dict[Topic, Found] = {"kind": Found(), "serial": Found()}
    cache = Cache(memory=MEMORY, semantic=Semantic(max_error, text=text, embedder=EMBEDDER))
    try:
        for one in requests:
            of, right = found[one.topic], one.unit.answer(one.topic)
            prompt = Prompt(one.text, pictures=[drawn(one.unit, one.quality)])
            reply = cache.ask(prompt, partial(_say, right), model=MODEL)
            of.asked += 1
            of.exact += reply.source == "exact"
            of.near += reply.source == "near"
            of.wrong += reply.source == "near" and reply.value != right
    finally:
        cache.close()
    return found


def _say(right: str, _: Prompt) -> str:
    return right
