"""Text as pieces: whole words where they are frequent, parts of them and letters where they are not.

Byte-pair merges (Sennrich et al., 2016), learned from the training texts: any word of letters and digits can be spelt.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from mmcache.model.errors import InvalidInputError

SPECIAL = ("<end>", "<answer>", "<describe>", "<weigh>")
END, ANSWER, DESCRIBE, WEIGH = range(len(SPECIAL))
"""`WEIGH` begins what is not shown, what the picture has of the kind that is asked about; `ANSWER` ends it."""
START = "▁"
"""Marks the first piece of a word."""
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_WORD = re.compile(r"[a-z0-9]+")


def split(text: str) -> list[str]:
    """Lower-case words of `text` in Latin letters and digits; accents and signs are left out."""
    plain = unicodedata.normalize("NFKD", text.lower())
    return _WORD.findall("".join(sign for sign in plain if not unicodedata.combining(sign)))


@dataclass(frozen=True)
class Words:
    """A vocabulary; a piece's number is its place in it."""

    pieces: tuple[str, ...]
    """`SPECIAL`, letters within a word, letters that begin one, then what was merged, in that order."""

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {piece: number for number, piece in enumerate(self.pieces)}

    def __len__(self) -> int:
        return len(self.pieces)

    def spell(self, word: str) -> list[int]:
        """The pieces of one word: at each step the neighbours that were merged first are merged."""
        parts = [START + word[0], *word[1:]]
        while len(parts) > 1:
            ranks = [self._numbers.get(left + right, len(self)) for left, right in pairwise(parts)]
            best = min(ranks)
            if best == len(self):
                break
            place = ranks.index(best)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return [self._numbers[part] for part in parts]

    def encode(self, text: str) -> tuple[list[int], list[str], list[int]]:
        """Pieces, words, and the word's place for each piece.

        Raises `InvalidInputError` for what is no text, or has no word in it.
        """
        if not isinstance(text, str):
            raise InvalidInputError(f"text is a str, not {type(text).__name__}")
        words = split(text)
        if not words:
            raise InvalidInputError("the text has no word in it; ask something")
        spelt = [self.spell(word) for word in words]
        places = [place for place, parts in enumerate(spelt) for _ in parts]
        return [part for parts in spelt for part in parts], words, places

    def decode(self, pieces: Iterable[int]) -> str:
        """Words with spaces between them; special pieces are left out."""
        shown = (self.pieces[piece] for piece in pieces if piece >= len(SPECIAL))
        return "".join(shown).replace(START, " ").strip()


def learn(texts: Sequence[str], size: int) -> Words:
    """A vocabulary of at most `size` pieces. Of equally frequent pairs the alphabetically first is merged."""
    words = Counter(word for text in texts for word in split(text))
    spelt = {word: [START + word[0], *word[1:]] for word in sorted(words)}
    pieces = [*SPECIAL, *ALPHABET, *(START + sign for sign in ALPHABET)]
    while len(pieces) < size:
        pairs = Counter[tuple[str, str]]()
        for word, parts in spelt.items():
            for pair in pairwise(parts):
                pairs[pair] += words[word]
        if not pairs:
            break
        most = max(pairs.values())
        left, right = min(pair for pair, count in pairs.items() if count == most)
        pieces.append(left + right)
        for parts in spelt.values():
            place = 0
            while place < len(parts) - 1:
                if parts[place] == left and parts[place + 1] == right:
                    parts[place : place + 2] = [left + right]
                place += 1
    return Words(tuple(pieces))
