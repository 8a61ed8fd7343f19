"""`Said`: what an answer says, however it was given, so that answers can be compared."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Said:
    """All choices of an answer, and which request the upstream computed it for."""

    choices: tuple[tuple[str, str, str], ...]
    """(text, why it ended, tool calls as JSON)."""
    streamed: bool
    number: int | None
    """The upstream's own count; None where the cache does not keep what tells it."""

    def as_json(self) -> dict[str, Any]:
        """For a pipe."""
        return {"choices": self.choices, "streamed": self.streamed, "number": self.number}

    @staticmethod
    def from_json(found: dict[str, Any]) -> Said:
        """What `as_json` gave."""
        return Said(tuple(map(tuple, found["choices"])), found["streamed"], found["number"])

    def same(self, other: Said) -> bool:
        """Whether an application would see the same answer."""
        return self.choices == other.choices and self.streamed == other.streamed


def number_of(fingerprint: Any) -> int | None:
    """From the fingerprint that the upstream gives each answer."""
    text = str(fingerprint or "")
    return int(text.removeprefix("fp_")) if text.startswith("fp_") and text[3:].isdigit() else None


def calls(found: Any) -> str:
    """Tool calls as OpenAI gives them → JSON."""
    named = [(one["function"]["name"], json.loads(one["function"]["arguments"])) for one in found or ()]
    return json.dumps(named, sort_keys=True) if named else ""


def whole(body: dict[str, Any]) -> Said:
    """Of an answer in one piece."""
    choices = sorted(body["choices"], key=lambda choice: choice["index"])
    told = (
        (one["message"].get("content") or "", one["finish_reason"], calls(one["message"].get("tool_calls")))
        for one in choices
    )
    return Said(tuple(told), False, number_of(body.get("system_fingerprint")))


def joined(chunks: list[dict[str, Any]]) -> Said:
    """Of a stream's chunks."""
    text: dict[int, str] = {}
    ended: dict[int, str] = {}
    tools: dict[int, list[Any]] = {}
    for choice in (choice for chunk in chunks for choice in chunk.get("choices") or ()):
        place, delta = choice.get("index") or 0, choice.get("delta") or {}
        text[place] = text.get(place, "") + (delta.get("content") or "")
        tools.setdefault(place, []).extend(delta.get("tool_calls") or ())
        ended[place] = choice.get("finish_reason") or ended.get(place, "")
    numbers = [number for chunk in chunks if (number := number_of(chunk.get("system_fingerprint"))) is not None]
    told = tuple((text[place], ended[place], calls(tools[place])) for place in sorted(text))
    return Said(told, True, numbers[0] if numbers else None)
