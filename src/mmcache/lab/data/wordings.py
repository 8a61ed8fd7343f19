"""Sentences with alternatives, as voice assistants write them down: one meaning, many wordings.

The notation is that of Home Assistant's sentence files: `(a|b)` one of them, `[a]` may be left out, `(a;b)` in any
order, `{list:slot}` a value, `<rule>` another sentence. A space inside counts, so `timer[s]` is one word.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mmcache.model.errors import InvalidInputError

_OPENERS = {"(": ")", "[": "]"}
_SPECIAL = re.compile(r"[()\[\]|;]|\{[^}]*\}|<[^>]*>|[^()\[\]|;{}<>]+")


@dataclass(frozen=True, slots=True)
class Slot:
    """A value of a list, under the name that the answer has for it."""

    values: str
    name: str


@dataclass(frozen=True, slots=True)
class Rule:
    """Another sentence, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Either:
    """One of them; an empty one where all may be left out."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mixed:
    """All of them, in any order."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One after the other."""

    parts: tuple[Node, ...]


Node = str | Slot | Rule | Either | Mixed | Row


def parse(template: str) -> Node:
    """The sentence's tree. Raises `InvalidInputError` for brackets that do not match."""
    tokens = _SPECIAL.findall(template)
    node, end = _group(tokens, 0, "")
    if end != len(tokens):
        raise InvalidInputError(f"brackets do not match in {template!r}")
    return node


def _group(tokens: Sequence[str], at: int, closer: str) -> tuple[Node, int]:
    rows: list[list[Node]] = [[]]
    mixed = False
    while at < len(tokens) and tokens[at] != closer:
        token = tokens[at]
        if token in _OPENERS:
            node, at = _group(tokens, at + 1, _OPENERS[token])
            if at >= len(tokens):
                raise InvalidInputError(f"a {token} is never closed")
            rows[-1].append(Either((node, "")) if token == "[" else node)
        elif token in "|;":
            mixed = mixed or token == ";"
            rows.append([])
        elif token[0] == "{":
            values, _, name = token[1:-1].partition(":")
            rows[-1].append(Slot(values, name or values))
        elif token[0] == "<":
            rows[-1].append(Rule(token[1:-1]))
        elif token in ")]":
            raise InvalidInputError(f"a {token} was never opened")
        else:
            rows[-1].append(token)
        at += 1
    parts = tuple(row[0] if len(row) == 1 else Row(tuple(row)) for row in rows)
    return (parts[0] if len(parts) == 1 else Mixed(parts) if mixed else Either(parts)), at


def slots(node: Node, rules: Mapping[str, Node]) -> set[Slot]:
    """All that it may mention."""
    if isinstance(node, str):
        return set()
    if isinstance(node, Slot):
        return {node}
    if isinstance(node, Rule):
        return slots(rules[node.name], rules)
    return set[Slot]().union(*(slots(part, rules) for part in node.parts))


def say(node: Node, rules: Mapping[str, Node], values: Mapping[str, str], draw: random.Random) -> tuple[str, set[str]]:
    """One of its wordings, drawn branch by branch, and the names of the slots that it mentions. `values`: of slots."""
    mentioned: set[str] = set()

    def spell(node: Node) -> str:
        if isinstance(node, str):
            return node
        if isinstance(node, Slot):
            mentioned.add(node.name)
            return values[node.name]
        if isinstance(node, Rule):
            return spell(rules[node.name])
        if isinstance(node, Either):
            return spell(draw.choice(node.parts))
        parts = [spell(part) for part in node.parts]
        if isinstance(node, Mixed):
            draw.shuffle(parts)
            return " ".join(parts)
        return "".join(parts)

    return " ".join(spell(node).split()), mentioned
