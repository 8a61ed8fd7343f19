"""Questions about easy-VQA's pictures as a stream: repeats, other wordings, re-encoded and cropped pictures."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from PIL import Image

from mmcache.lab.data.picture_questions import COLOURS, SHAPES, Split, asked, facts, kind
from mmcache.lab.data.pictures import shapes

Variant = Literal["plain", "jpeg", "crop"]
VARIANTS: tuple[Variant, ...] = ("plain", "jpeg", "crop")
QUALITY = 90
"""Of the re-encoded JPEG."""
CROPPED = 1
"""Pixels cut off each side of 64."""


@dataclass(frozen=True, slots=True)
class Request:
    """One question about one picture."""

    text: str
    picture: int
    """Its original's place in `shapes()`."""
    variant: Variant
    answer: str
    """The right one."""

    @property
    def name(self) -> str:
        """Of the picture as it is sent."""
        return f"{self.picture}.{self.variant}"

    @property
    def reply(self) -> str:
        """What the answering model says here: the right answer, and which picture it was about. So whoever serves it
        later shows where it comes from."""
        return f"{self.answer}@{self.picture}"


Compute = Callable[[Request], str]


def answer_of(reply: str) -> str:
    """Without the picture."""
    return reply.partition("@")[0]


def about(reply: str) -> int:
    """The picture that the reply was computed for."""
    return int(reply.partition("@")[2])


def same_answer(stored: str, computed: str) -> bool:
    """The judge: by answer, whatever picture it was computed for."""
    return answer_of(stored) == answer_of(computed)


@cache
def picture(number: int, variant: Variant) -> bytes:
    """An encoded picture: the package's PNG file, a JPEG of it, or a crop scaled back to 64 × 64."""
    file = shapes()[number]
    if variant == "plain":
        return file.read_bytes()
    image = Image.open(file).convert("RGB")
    buffer = io.BytesIO()
    if variant == "jpeg":
        image.save(buffer, "JPEG", quality=QUALITY)
    else:
        side = image.width
        inner = image.crop((CROPPED, CROPPED, side - CROPPED, side - CROPPED))
        inner.resize((side, side), Image.Resampling.BICUBIC).save(buffer, "PNG")
    return buffer.getvalue()


def truth(question: str, colour: str, shape: str) -> str | None:
    """The right answer; None where the question takes something for granted that is not in the picture."""
    words = set(question.rstrip("?").split())
    named = words.intersection((*SHAPES, *COLOURS))
    here = not named or bool(named.intersection((colour, shape)))
    match kind(question):
        case "colour":
            return colour if here else None
        case "shape":
            return shape if here else None
        case "is there":
            return "yes" if here else "no"
        case _:
            return "no" if here else "yes"


@cache
def wordings(split: Split = "train") -> tuple[str, ...]:
    """The 107 distinct questions."""
    return tuple(sorted({one.question for one in asked(split)}))


def replay() -> list[Request]:
    """The package's own questions, in its own order: no (question, picture) pair comes twice."""
    return [Request(one.question, one.picture, "plain", one.answer) for one in asked("train")]


def stream(
    seed: int, requests: int, pictures: int, exponent: float = 0.9, edited: float = 0.3, about_all: bool = True
) -> list[Request]:
    """`requests` questions about `pictures` of the pictures, whose popularity follows Zipf's law (made up).

    edited: the share that comes re-encoded or cropped, half of each. about_all: any of the 107 wordings that suits the
    picture; else only those about colour and shape.
    """
    draw = random.Random(seed)
    known = facts("train")
    chosen = draw.sample(sorted(known), pictures)
    weights = [1 / (rank + 1) ** exponent for rank in range(pictures)]
    texts = [text for text in wordings() if about_all or kind(text) in ("colour", "shape")]
    suited = {number: _suited(texts, *known[number]) for number in chosen}
    found = []
    for number in draw.choices(chosen, weights, k=requests):
        text, answer = draw.choice(suited[number])
        variant: Variant = "plain" if draw.random() >= edited else draw.choice(VARIANTS[1:])
        found.append(Request(text, number, variant, answer))
    return found


def _suited(texts: Sequence[str], colour: str, shape: str) -> list[tuple[str, str]]:
    answers = ((text, truth(text, colour, shape)) for text in texts)
    return [(text, answer) for text, answer in answers if answer is not None]
