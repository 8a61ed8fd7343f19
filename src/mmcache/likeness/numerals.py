"""Number words: "twenty-three", "two hundred and five", "third"."""

from __future__ import annotations

import re

from mmcache.likeness.lexicon import ORDINALS, SCALES, TENS, UNITS

_NEXT = re.compile(r"(?:\s+|-)(?:(and)\s+)?([^\W\d_]++)(?!['’\w])", re.IGNORECASE)


def number_at(text: str, start: int, word: str) -> tuple[str, int] | None:
    """The number that begins with `word` at `start`, in digits (`#3`: the third), and where it ends; None: no number.

    "one two three" are three numbers, "nineteen eighty-four" two: only what is one number by grammar is joined.
    """
    if word in ORDINALS:
        return f"#{ORDINALS[word]}", start + len(word)
    if word not in UNITS and word not in TENS:
        return None
    total, part, end = 0, UNITS[word] if word in UNITS else TENS[word], start + len(word)
    scale = 10**12
    while found := _NEXT.match(text, end):
        linked, following = found.group(1), found.group(2).casefold()
        if linked and not (part >= 100 or (total and not part)):
            break
        if following == "hundred" and 0 < part < 100 and not linked:
            part *= 100
        elif following in SCALES and part and SCALES[following] < scale and not linked:
            scale = SCALES[following]
            total, part = total + part * scale, 0
        elif following in TENS and part % 100 == 0 and (part >= 100 or (total and not part)):
            part += TENS[following]
        elif following in UNITS and UNITS[following] and _fits(UNITS[following], part, total):
            part += UNITS[following]
        else:
            break
        end = found.end()
    return str(total + part), end


def _fits(unit: int, part: int, total: int) -> bool:
    if part % 100 == 0:
        return part >= 100 or bool(total and not part)
    return part % 100 >= 20 and part % 10 == 0 and unit < 10
