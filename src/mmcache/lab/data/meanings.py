"""Questions whose meaning is known: many wordings of one meaning, and pairs that nearly say the same.

`household`: sentences that volunteers wrote down for the voice assistant of Home Assistant (Apache-2.0), as templates:
the wordings are theirs, their combination with rooms and numbers is drawn by us. `pairs`: the 600 labelled pairs of
fow-cache (M. ap Gwyn, 2026; CC BY 4.0), written by language models, reviewed by its author in a sample.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from mmcache.lab.assets import Asset
from mmcache.lab.data.wordings import Node, Slot, parse, say, slots

HOUSEHOLD = Asset(
    "home_assistant_intents",
    "data/en.json",
    "65a7162518fffb15bd07590ff1c630bc45eedd5065738eeea96ce2f8d0cc02be",
)
PAIRS = Asset(
    "fow_cache",
    "data/pairs.jsonl",
    "d9378763c7ce3be7931af2713f60c3ad3213baaa070ba7ad535da93e7d56195e",
)
SKIPPED = frozenset({"HassBroadcast", "HassNevermind", "HassRespond"})
"""Of the intents: what is repeated word by word, and what has no answer."""
TOLD = frozenset({"HassGetState"})
"""Of the intents: where the kind of reply (any, all, which, how many) is part of what was asked. Elsewhere it follows
from what the device is, which the house knows."""
MADE_UP: Mapping[str, tuple[str, ...]] = {
    "area": (
        "kitchen", "bedroom", "living room", "bathroom", "hallway", "office", "garage", "attic", "basement",
        "dining room", "nursery", "guest room", "laundry room", "study", "pantry", "conservatory",
    ),
    "floor": ("ground", "first", "second", "top"),
    "name": (
        "desk lamp", "ceiling fan", "front door", "back door", "coffee machine", "heater", "air conditioner",
        "christmas tree", "television", "water pump", "reading lamp", "porch", "bookshelf", "aquarium", "garden gate",
    ),
    "timer_name": ("pizza", "laundry", "tea", "pasta", "eggs", "homework"),
    "shopping_list_item": ("milk", "bread", "apples", "coffee", "rice", "soap", "butter", "paper towels"),
    "todo_list_item": ("call the dentist", "water the plants", "pay the rent", "clean the gutters"),
    "timer_command": ("turn off the lights", "open the garage door", "lock the front door", "stop the music"),
    "search_query": ("abbey road", "thriller", "kind of blue", "blue monday", "the planets"),
    "zone": ("work", "school", "the gym"),
}  # fmt: skip
"""The household: what the templates leave open."""
NUMBERS = ("5", "10", "15", "20", "25", "30", "40", "45", "50", "60", "70", "75", "80", "90")

Meaning = tuple[str, ...]
"""What the assistant does: intent, kind of reply, `slot=value`… sorted."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One wording and what it means."""

    text: str
    meaning: Meaning


@dataclass(frozen=True, slots=True)
class Pair:
    """Two questions, and whether one answer serves both."""

    kind: str
    """`paraphrase near_repeat negation entity_swap number_date scope`."""
    first: str
    second: str
    same: bool


@dataclass(frozen=True)
class _Block:
    """Sentences of one intent that fill the same slots."""

    fixed: Meaning
    sentences: tuple[Node, ...]
    slots: tuple[Slot, ...]


@cache
def pairs() -> tuple[Pair, ...]:
    """Without the eight that its author calls ambiguous. Raises `AssetError`."""
    rows = (msgspec.json.decode(line) for line in PAIRS.read().splitlines())
    return tuple(
        Pair(row["category"], row["a"], row["b"], row["same_answer"]) for row in rows if not row.get("ambiguous")
    )


class Household:
    """One family's requests: a fixed set of meanings, and their wordings on demand."""

    def __init__(self, kinds: int, each: int, seed: int) -> None:
        """Draws `kinds` of requests, and for each of them `each` choices of room, device, number (fewer where there
        are not so many). So most meanings have others that differ in one word. Raises `AssetError`.
        """
        self._blocks, self._rules, self._lists = _templates()
        self._draw = random.Random(seed)
        self._owners: dict[str, Meaning] = {}
        self._found: dict[Meaning, tuple[_Block, dict[str, str]]] = {}
        for block in self._draw.sample(self._blocks, kinds):
            drawn: dict[Meaning, dict[str, str]] = {}
            for _ in range(20 * each):
                spoken, meant = self._fill(block)
                if len(drawn) < each and self._word(block, spoken) is not None:
                    drawn.setdefault(_meaning(block, meant), meant)
            for meaning, meant in drawn.items():
                self._found.setdefault(meaning, (block, meant))
        self.meanings = tuple(self._draw.sample(list(self._found), len(self._found)))
        """By popularity, which knows nothing of kinds."""

    def _fill(self, block: _Block) -> tuple[dict[str, str], dict[str, str]]:
        """A value for each slot: as spoken, and as meant."""
        spoken, meant = {}, {}
        for slot in block.slots:
            spoken[slot.name], meant[slot.name] = self._draw.choice(self._lists[slot.values])
        return spoken, meant

    def _word(self, block: _Block, spoken: dict[str, str]) -> str | None:
        text, mentioned = say(self._draw.choice(block.sentences), self._rules, spoken, self._draw)
        return text if mentioned == set(spoken) else None

    def ask(self, meaning: Meaning) -> Asked:
        """One more wording of it. What could mean something else as well, by what was said before, is not said."""
        block, meant = self._found[meaning]
        for _ in range(200):
            spoken = {
                slot.name: self._draw.choice(
                    [said for said, out in self._lists[slot.values] if out == meant[slot.name]]
                )
                for slot in block.slots
            }
            text = self._word(block, spoken)
            if text is not None and self._owners.setdefault(text, meaning) == meaning:
                return Asked(text, meaning)
        return Asked(" ".join(meaning), meaning)  # each of its wordings belongs to another meaning

    def stream(self, requests: int, exponent: float = 0.9) -> Iterator[Asked]:
        """`requests` of them; how popular a meaning is follows Zipf's law, which is made up."""
        weights = [1 / (rank + 1) ** exponent for rank in range(len(self.meanings))]
        for meaning in self._draw.choices(self.meanings, weights, k=requests):
            yield self.ask(meaning)


def _meaning(block: _Block, meant: Mapping[str, str]) -> Meaning:
    return (*block.fixed, *sorted(f"{name}={value}" for name, value in meant.items()))


@cache
def _templates() -> tuple[tuple[_Block, ...], dict[str, Node], dict[str, list[tuple[str, str]]]]:
    """Blocks of sentences, rules, and (spoken, meant) of every list."""
    data = msgspec.json.decode(HOUSEHOLD.read())
    rules = {name: parse(template) for name, template in data["expansion_rules"].items()}
    lists = {name: _values(entry, rules) for name, entry in data["lists"].items()}
    lists.update({name: [(value, value) for value in values] for name, values in MADE_UP.items()})
    blocks = []
    for intent, entry in sorted(data["intents"].items()):
        for block in entry["data"] if intent not in SKIPPED else ():
            sentences = tuple(parse(template) for template in block["sentences"])
            mentioned = {slot for sentence in sentences for slot in slots(sentence, rules)}
            if len({slot.name for slot in mentioned}) < len(mentioned) or any(
                not lists.get(s.values) for s in mentioned
            ):
                continue  # one name for two lists: its wordings do not all mean the same
            reply = str(block.get("response", "")) if intent in TOLD else ""
            fixed = (intent, reply, *_fixed(block.get("slots", {})))
            blocks.append(_Block(fixed, sentences, tuple(sorted(mentioned, key=lambda slot: slot.name))))
    return tuple(blocks), rules, lists


def _fixed(values: Mapping[str, Any]) -> list[str]:
    return sorted(f"{name}={value}" for name, value in values.items())


def _values(entry: Mapping[str, Any], rules: Mapping[str, Node]) -> list[tuple[str, str]]:
    """(spoken, meant) of a list; all spellings of each value.

    Meant is one of them and not the package's own code: that is `off` for a sensor and `closed` for a shutter, and only
    the house knows which of them "is the back door closed" asks for.
    """
    if "range" in entry:
        return [(number, number) for number in NUMBERS]
    groups = [_spellings(value["in"], rules) for value in entry.get("values", ())]
    return [(said, group[0]) for group in groups for said in group]


def _spellings(template: str, rules: Mapping[str, Node]) -> list[str]:
    """Every wording of a short template, in a fixed order."""
    draw = random.Random(0)
    return sorted({say(parse(template), rules, {}, draw)[0] for _ in range(64)} - {""})
