"""Server-sent events: `Events` cuts a body into them, `Recorder` says whether they were a whole answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from mmcache.model.errors import UpstreamError
from mmcache.server.answers_stored import (
    CALLED,
    ENDS,
    LARGEST_BYTES,
    cites,
    filtered,
    is_whole,
    read_object,
    spent,
    tokens,
    why_ended,
)

DONE = b"[DONE]"
_MARK = b"\xef\xbb\xbf"
"""A byte order mark, which a body may begin with."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event, or a comment that keeps a connection alive."""

    raw: bytes
    """As it is sent: its lines as they came, each ended by a line feed, and an empty one."""
    name: str = ""
    data: bytes | None = None
    """Its data lines, joined by line feeds; None where it has none."""
    comment: bool = False
    """Nothing but comments: passed on while the stream lasts, not recorded."""


class Events:
    """Cuts what comes in chunks, wherever they are cut, into events (WHATWG, "Server-sent events")."""

    def __init__(self, largest_bytes: int = LARGEST_BYTES) -> None:
        self._held = bytearray()
        self._largest, self._looked = largest_bytes, 0
        self._begun = self._feed_is_left = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that end in `chunk`. Raises `UpstreamError` for one that never ends."""
        if self._feed_is_left and chunk:  # after a carriage return, which ended its line already
            self._feed_is_left = False
            chunk = chunk[1:] if chunk[:1] == b"\n" else chunk
        if b"\r" in chunk:
            self._feed_is_left = chunk[-1:] == b"\r"
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        held = self._held
        held += chunk
        if not self._begun and not (len(held) < len(_MARK) and _MARK.startswith(held)):
            self._begun = True
            if held.startswith(_MARK):
                del held[: len(_MARK)]
        found, start = [], 0
        while (end := held.find(b"\n\n", max(start, self._looked))) >= 0:
            lines = bytes(held[start:end]).lstrip(b"\n")
            start = self._looked = end + 2
            if lines:
                found.append(_event(lines))
        del held[:start]
        self._looked = max(0, len(held) - 1)
        if len(held) > self._largest:
            raise UpstreamError("the upstream sends an event that does not end")
        return found

    @property
    def rest(self) -> bytes:
        """Of an event within which the body has ended so far; empty where it has not."""
        return bytes(self._held) if self._held.strip(b"\n") else b""


def _event(lines: bytes) -> Event:
    if lines[:5] == b"data:" and b"\n" not in lines:  # nearly all are
        data = lines[6:] if lines[5:6] == b" " else lines[5:]
        return Event(lines + b"\n\n", "", data)
    name, data_lines, told = "", [], []
    for line in lines.split(b"\n"):
        label, _, value = line.partition(b":")
        if not label and line[:1] == b":":
            continue
        told.append(line)
        value = value[1:] if value[:1] == b" " else value
        if label == b"data":
            data_lines.append(value)
        elif label == b"event":
            name = value.decode("utf-8", "replace")
    if not told:
        return Event(lines + b"\n\n", comment=True)
    return Event(b"\n".join(told) + b"\n\n", name, b"\n".join(data_lines) if data_lines else None)


class Recorder(Protocol):
    """Watches the events of one stream."""

    tokens: int
    """Of the usage that it told."""

    def see(self, event: Event) -> None:
        """The next one; comments are not shown."""
        ...

    def flaw(self) -> str:
        """Why the stream must not be kept, now that it has ended; empty where it may be."""
        ...

    def gist(self) -> list[Any]:
        """What it says, without ids and times."""
        ...


@dataclass
class _Said:
    """One choice."""

    content: list[str] = field(default_factory=list)
    calls: dict[int, list[str]] = field(default_factory=dict)
    ended: Any = None

    def called(self, place: int, function: Mapping[str, Any] | None) -> None:
        """A piece of a call. function: None for a tool of another kind."""
        if function is None:
            return
        pieces = self.calls.setdefault(place, ["", ""])
        pieces[0] += function.get("name") or ""
        pieces[1] += function.get("arguments") or ""


class ChatRecorder:
    """Of `/v1/chat/completions`: whole where every choice has ended by itself, `[DONE]` came, and nothing after it."""

    def __init__(self, choices: int, usage: bool, most_tokens: int = 0) -> None:
        """choices: how many there must be; usage: it must be told; most_tokens: see `answers_stored.flaw`."""
        self.tokens = 0
        self._choices, self._usage, self._told = choices, usage, False
        self._most, self._spent = most_tokens, False
        self._done, self._why = False, ""
        self._said: dict[int, _Said] = {}

    def see(self, event: Event) -> None:
        if self._done:
            self._refuse("malformed-answer")
        elif event.name == "error":
            self._refuse("error")
        elif event.data == DONE:
            self._done = True
        elif event.data is not None:
            try:
                self._chunk(read_object(event.data))
            except (AttributeError, TypeError):  # an object where a list should be, and the like
                self._refuse("malformed-answer")

    def _refuse(self, why: str) -> None:
        self._why = self._why or why

    def _chunk(self, chunk: Mapping[str, Any] | None) -> None:
        if chunk is None:
            return self._refuse("malformed-answer")
        if chunk.get("error") is not None:
            return self._refuse("error")
        if filtered(chunk.get("prompt_filter_results")):
            return self._refuse("content-filter")
        if cites(chunk):
            self._refuse("web-search")
        if isinstance(chunk.get("usage"), dict):
            self._told, self.tokens, self._spent = True, tokens(chunk), spent(chunk, self._most)
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            return self._refuse("malformed-answer")
        for choice in choices:
            if not isinstance(choice, dict) or not isinstance(choice.get("index"), int):
                return self._refuse("malformed-answer")
            self._choice(choice, self._said.setdefault(choice["index"], _Said()))
        return None

    def _choice(self, choice: Mapping[str, Any], said: _Said) -> None:
        delta = choice.get("delta") or {}
        if not isinstance(delta, dict):
            return self._refuse("malformed-answer")
        if choice.get("error") is not None:
            self._refuse("error")
        if delta.get("refusal"):
            self._refuse("refusal")
        if delta.get("audio") is not None:
            self._refuse("audio-output")
        if cites(delta):
            self._refuse("web-search")
        if filtered(choice.get("content_filter_results")):
            self._refuse("content-filter")
        text, calls, function = delta.get("content"), delta.get("tool_calls") or (), delta.get("function_call")
        ended = choice.get("finish_reason")
        if said.ended is not None and (text or calls or function or ended not in (None, said.ended)):
            return self._refuse("malformed-answer")  # it had ended
        if isinstance(text, str):
            said.content.append(text)
        for call in calls:
            said.called(call.get("index", 0), call.get("function"))
        if function is not None:
            said.called(-1, function)
        said.ended = said.ended or ended
        return None

    def flaw(self) -> str:
        if self._why:
            return self._why
        if not self._done:
            return "unfinished"
        if len(self._said) != self._choices or sorted(self._said) != list(range(self._choices)):
            return "choices-missing"
        for said in self._said.values():
            if said.ended not in ENDS:
                return why_ended(said.ended)
            if not all(is_whole({"arguments": arguments}) for _, arguments in said.calls.values()):
                return "truncated"
        if self._spent and any(said.ended in CALLED for said in self._said.values()):
            return "truncated"
        return "usage-missing" if self._usage and not self._told else ""

    def gist(self) -> list[Any]:
        return [
            [index, "".join(said.content), [said.calls[place] for place in sorted(said.calls)]]
            for index, said in sorted(self._said.items())
        ]
