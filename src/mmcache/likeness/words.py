"""What one of two texts has that the other has not, of the things that turn an answer around. Rules and small lists,
no model: an embedding puts "is there a red shape?" beside "is there not a red shape?", this does not.

A text becomes a sequence of tokens, each with a class. *Nothing is dropped* but articles, "please" and the stops
`. , ; : ! ?`: what is not understood, from "+" to a whole sentence in a script without spaces, is a token of class
`CONTENT`. So two texts without a difference are the same sequence, but for spelling rules that `lexicon` lists: "three"
and "3", "isn't" and "is not", "3 pm" and "15:00", "cats" and "cat" (the s-stemmer of Harman 1991).
Numbers keep their form where it may matter: 3.10 is not 3.1, 1.000 is not 1, 007 is not 7.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from unicodedata import normalize

from mmcache.likeness.base import WordDifference
from mmcache.likeness.lexicon import (
    BEFORE_IS,
    CONTRACTIONS,
    EMPTY,
    MEASURES,
    MONTHS,
    NEGATIONS,
    NO_PLURALS,
    ORDINALS,
    QUANTITIES,
    SPELLINGS,
)
from mmcache.likeness.numerals import number_at

NUMBER, NEGATION, QUOTED, NAME, CONTENT = (
    kind.value
    for kind in (
        WordDifference.NUMBER,
        WordDifference.NEGATION,
        WordDifference.QUOTED,
        WordDifference.NAME,
        WordDifference.CONTENT,
    )
)


class Words(NamedTuple):
    """A text's tokens in order, each as what it is compared by, and the class of each: the value of a
    `WordDifference`."""

    keys: tuple[str, ...]
    classes: tuple[int, ...]


_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_TOKEN = re.compile(
    rf"""
    (?P<quoted> ```.{{0,20000}}?``` | `[^`]{{1,2000}}+` | "[^"]{{0,2000}}+" | “[^”]{{0,2000}}+” | «[^»]{{0,2000}}+»
              | „[^“”]{{0,2000}}+[“”] | (?<!\w)'[^'\n]{{1,200}}+'(?!\w) | (?<!\w)‘[^’\n]{{1,200}}+’(?!\w) )
  | (?P<address> [a-z][\w+.-]{{0,30}}+:// \S{{1,4000}}+ | www\.\S{{1,4000}}+
              | [\w.+-]{{1,64}}+ @ [\w-]{{1,64}}+ (?:\.[\w-]{{1,64}}+)+
              | (?<![\w/\\]) (?: ~ | \.{{1,2}} | [a-z]: )? [/\\] [\w~-] [\w.~/\\-]{{0,4000}}+ )
  | (?P<date> \d{{4}}-\d\d-\d\d(?!\w)
              | (?<!\w) \d{{1,2}} (?:st|nd|rd|th)? \s+ (?:of\s+)? (?:{_MONTH})\b\.? (?: ,?\s+ \d{{4}}\b )?
              | (?<!\w) (?:{_MONTH})\b\.? \s+ \d{{1,2}} (?:st|nd|rd|th)? \b (?![.:/]?\d) (?: ,?\s+ \d{{4}}\b )? )
  | (?P<time> (?<![\w.:]) \d{{1,2}} (?: :\d\d ){{1,2}} (?![\d:]) (?: \s?[ap]\.?m\b\.? )?
              | (?<![\w.:]) \d{{1,2}} \s?[ap]\.?m\b\.? )
  | (?P<number> (?: (?<![\w)\]\s]) [-−+] | (?<=\s) [-−+] (?=\d) )? \d++ (?: [.,]\d++ )*+ (?: \s?[%°] [cf]?\b )? )
  | (?P<word> [^\W\d_]++ (?: ['’] [^\W\d_]++ )*+ )
  | (?P<rest> \S )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_JOINED = re.compile(r"(?:[a-z0-9]|(?<=[a-z0-9])[_.#+:](?=[a-z0-9_])|_)+", re.IGNORECASE)
_MARKED = re.compile(r"[\d_]|[A-Za-z][.:#+][A-Za-z]|[a-z][A-Z]")
_LETTER = re.compile(r"[A-Za-z_]")
_PLAIN = re.compile(r"\s*+([^\W\d_]++)(?=\s|$|[?!,;]|\.(?:\s|$))")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\ufeff\u2060"))
_STOPS = frozenset(".,;:!?…¿¡。、，？！；：؟،।")
_CLOSING = ".,;:!?)]}>'\"”’"


def analyse(text: str) -> Words:
    """The tokens of `text`. Linear in its length; keep the result of a stored text."""
    text = normalize("NFC", text).translate(_INVISIBLE)
    shouting = text.isupper() and len(text) > 5
    return _Reader(text, shouting).words()


class _Reader:
    """One pass over one text."""

    def __init__(self, text: str, shouting: bool) -> None:
        self._text, self._shouting = text, shouting
        self._keys: list[str] = []
        self._classes: list[int] = []

    def _put(self, key: str, kind: int) -> None:
        self._keys.append(key)
        self._classes.append(kind)

    def words(self) -> Words:
        text, at, begins = self._text, 0, True
        while True:
            if (plain := _PLAIN.match(text, at)) and not _special(plain.group(1)):
                at = self._word(plain.group(1), plain.start(1), plain.end(), begins)
                begins = False
                continue
            if not (found := _TOKEN.search(text, at)):
                break
            kind, piece, at = found.lastgroup, found.group(), found.end()
            if kind in ("word", "number") and (joined := _joined(text, found.start())):
                self._put(joined, QUOTED)
                at = found.start() + len(joined)
            elif kind == "word":
                at = self._word(piece, found.start(), at, begins)
            elif kind == "rest":
                if piece not in _STOPS and not self._hyphen(piece, at):
                    self._put(piece, CONTENT)
            elif kind == "number":
                at = self._number(piece, at)
            elif kind == "quoted":
                self._put('"' + piece.strip("`\"'“”„«»‘’"), QUOTED)
            elif kind == "address":
                kept = piece.rstrip(_CLOSING) or piece
                self._put(kept, QUOTED)
                at = found.start() + len(kept)
            elif kind == "date":
                self._put(_date(piece), NUMBER)
            else:
                self._put(_time(piece), NUMBER)
            begins = (kind == "rest" and piece in ".!?…:") or (begins and kind == "rest")
        return Words(tuple(self._keys), tuple(self._classes))

    def _hyphen(self, piece: str, end: int) -> bool:
        """Whether it joins two words ("well-known") and says nothing itself."""
        around = self._text[max(0, end - 2) : end + 1]
        return piece in "-‐‑" and len(around) == 3 and around[0].isalpha() and around[2].isalpha()

    def _number(self, piece: str, end: int) -> int:
        piece = "".join(piece.split()).replace("−", "-").casefold()
        figure = piece.rstrip("%°cf")
        unit = piece[len(figure) :]
        key = figure.replace(",", "") if _GROUPED.fullmatch(figure) else figure
        if not unit:
            after = _AFTER.match(self._text, end)
            if after and after.group(1).casefold() in ("st", "nd", "rd", "th") and after.start(1) == end:
                self._put(f"#{key}", NUMBER)
                return after.end()
            if after and (measure := MEASURES.get(after.group(1).casefold())):
                unit, end = measure, after.end()
        if self._keys and self._keys[-1] in "$€£" and not unit:
            unit = self._keys.pop()
            self._classes.pop()
        self._put(key + unit, NUMBER)
        return end

    def _word(self, piece: str, start: int, end: int, begins: bool) -> int:
        lower = piece.replace("’", "'").casefold()
        if spelled := number_at(self._text, start, lower):
            key, end = spelled
            after = _AFTER.match(self._text, end)
            unit = MEASURES.get(after.group(1).casefold(), "") if after and not key.startswith("#") else ""
            self._put(key + unit, NUMBER)
            return after.end() if after and unit else end
        if ("'" in lower or lower == "cannot") and self._contracted(lower):
            return end
        if lower in NEGATIONS:
            self._put(lower, NEGATION)
        elif lower in QUANTITIES or lower in ORDINALS:
            self._put(lower, NUMBER)
        elif not self._shouting and piece[0].isupper() and not begins and lower not in ("i", "i'm", "i've", "i'd"):
            self._put(f"^{piece if piece.isupper() else lower}", NAME)
        elif lower in EMPTY or (lower == "a" and _BEFORE_WORD.match(self._text, end)):
            pass
        else:
            self._put(SPELLINGS.get(lower) or _singular(lower), CONTENT)
        return end

    def _contracted(self, lower: str) -> bool:
        if parts := CONTRACTIONS.get(lower):
            first = parts[0]
        elif lower.endswith("n't"):
            first = lower[:-3]
        elif lower.endswith("'s") and lower[:-2] in BEFORE_IS:
            self._put(lower[:-2], CONTENT)
            self._put("be", CONTENT)
            return True
        elif lower[:2] == "n'":  # French: n'est
            self._put("ne", NEGATION)
            self._put(lower[2:], CONTENT)
            return True
        else:
            return False
        self._put(SPELLINGS.get(first, first), CONTENT)
        self._put("not", NEGATION)
        return True


_AFTER = re.compile(r"[ -]?([^\W\d_]++|[$€£%])(?![\w'’])")
_BEFORE_WORD = re.compile(r"\s+[^\W\d_]{2}")


def _joined(text: str, start: int) -> str | None:
    """An identifier, version or code that begins here: letters with figures, underscores, dots or inner capitals."""
    found = _JOINED.match(text, start)
    if found is None or not _MARKED.search(found.group()) or not _LETTER.search(found.group()):
        return None
    piece = found.group()
    figure = piece.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    suffix = piece[len(figure) :].casefold()
    if figure.replace(".", "").isdigit() and (suffix in MEASURES or suffix in ("st", "nd", "rd", "th")):
        return None  # 5km, 3rd
    return piece


def _special(word: str) -> bool:
    """Whether a plain word may begin a date, or is an identifier with inner capitals."""
    return (not word.islower() and not word.isupper() and not word[1:].islower()) or word.casefold() in MONTHS


def _singular(word: str) -> str:
    if len(word) < 4 or word[-1] != "s" or word in NO_PLURALS or "'" in word or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")) and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1]


def _date(piece: str) -> str:
    if piece[4:5] == "-":
        return piece
    figures = re.findall(r"\d+", piece)
    month = next(MONTHS[w] for w in re.findall(r"[a-z]+", piece.casefold()) if w in MONTHS)
    year = figures[1] if len(figures) > 1 else ""
    return f"{year}-{month:02}-{int(figures[0]):02}"


def _time(piece: str) -> str:
    figures = [int(part) for part in re.findall(r"\d+", piece)]
    half = next((mark for mark in piece.casefold() if mark in "ap"), "")
    hour, rest = figures[0], [*figures[1:], 0][: max(1, len(figures) - 1)]
    if half and 1 <= hour <= 12:
        hour = hour % 12 + (12 if half == "p" else 0)
    elif half or (1 <= hour <= 12 and piece[0] != "0"):  # 25 am; 3:00, of which nobody knows which half is meant
        return "".join(piece.split()).casefold() + "?"
    return ":".join(f"{part:02}" for part in (hour, *rest))


def differences(asked: str | Words, stored: str | Words) -> WordDifference:
    """What only one side has, and whether what both have stands in another order. Symmetric."""
    one = analyse(asked) if isinstance(asked, str) else asked
    other = analyse(stored) if isinstance(stored, str) else stored
    if one.keys == other.keys:
        return WordDifference.NONE
    balance: dict[str, int] = {}
    for key in one.keys:
        balance[key] = balance.get(key, 0) + 1
    for key in other.keys:
        balance[key] = balance.get(key, 0) - 1
    found = 0
    for words in (one, other):
        for key, kind in zip(words.keys, words.classes, strict=True):
            if balance[key]:
                found |= kind
    if [key for key in one.keys if not balance[key]] != [key for key in other.keys if not balance[key]]:
        found |= WordDifference.ORDER.value
    return WordDifference(found)
