"""What a gate says: how far apart two inputs are, in steps that mean the same for everybody."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, IntEnum, auto


class Nearness(IntEnum):
    """How near two pictures or sounds are. Each step allows what the ones before it allow; `UNLIKE` never passes."""

    SAME = 0
    """The same canonical content, to the bit (or none on both sides)."""
    REENCODED = 1
    """The same picture or sound, framed alike: lossy compression, scaling, slight noise, gain."""
    TRIMMED = 2
    """Nearly the same: a slight crop or shift, a few per cent trimmed; some of the content is missing."""
    UNLIKE = 3


class WordDifference(Flag):
    """What only one of two texts has, of the things that turn an answer around."""

    NONE = 0
    NUMBER = auto()
    """Numbers, in digits or words."""
    NEGATION = auto()
    QUOTED = auto()
    """Quoted strings, identifiers, code, addresses."""
    NAME = auto()
    """Capitalised or otherwise marked names."""
    ORDER = auto()
    """The same words in another order: "is the cat on the dog" and "is the dog on the cat"."""
    CONTENT = auto()
    """Any other word that carries content: one side's colour, shape, place, verb."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """How like a request is to a stored one, part by part. Never one blended number."""

    asked: bytes
    """16 bytes that name the request's words within its realm."""
    stored: bytes
    """The same for the stored request's."""
    text: float
    """Cosine of both texts' embeddings, −1 to 1; exactly 1.0 where `asked == stored`."""
    words: WordDifference = WordDifference.NONE
    picture: Nearness = Nearness.SAME
    """Of the least alike of the pictures, compared in order."""
    sound: Nearness = Nearness.SAME
