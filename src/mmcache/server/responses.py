"""`POST /v1/responses`: as chat, for requests that leave nothing with the upstream and take nothing from there.

The answer of a hit has the recorded id. It was asked for with `store: false`, so nobody can come back to it: neither
`previous_response_id` nor `GET /v1/responses/{id}` knows it, after a miss or a hit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmcache.server.answers_stored import cites, is_whole, objects, read_object, tokens
from mmcache.server.asking import Dialect
from mmcache.server.canonical.responses import responses
from mmcache.server.exchange import Route
from mmcache.server.recording import DONE, Event
from mmcache.server.reuse import Reuse

PATH = "/v1/responses"
_OUTPUT = frozenset(("message", "reasoning", "function_call", "custom_tool_call"))
"""Items that a model makes by itself."""
_BROKEN = {"response.failed": "error", "error": "error", "response.incomplete": "truncated"}


def flaw(answer: Mapping[str, Any] | None, choices: int = 1, most_tokens: int = 0) -> str:
    """Why this response must not be kept; empty where it may be."""
    if answer is None:
        return "malformed-answer"
    if answer.get("error") is not None or answer.get("status") == "failed":
        return "error"
    if answer.get("incomplete_details") is not None or answer.get("status") == "incomplete":
        return "truncated"
    output = answer.get("output")
    if answer.get("status") != "completed":
        return "unfinished"
    if not isinstance(output, list) or not output:
        return "malformed-answer"
    return next((why for item in output if (why := _item_flaw(item))), "")


def _item_flaw(item: Any) -> str:
    if not isinstance(item, dict):
        return "malformed-answer"
    if item.get("type") not in _OUTPUT:
        return "unknown-item"
    if item.get("status") not in (None, "completed"):
        return "unfinished"
    if item["type"] == "function_call" and not is_whole(item):
        return "truncated"
    content = item.get("content") if item["type"] == "message" else None
    if isinstance(content, list):
        if any(not isinstance(part, dict) or part.get("type") != "output_text" for part in content):
            return "refusal"
        if any(map(cites, content)):
            return "web-search"
    return ""


def gist(answer: Mapping[str, Any] | None) -> list[Any]:
    """What it says, without ids and times."""
    found: list[Any] = []
    for item in objects((answer or {}).get("output")):
        if item.get("type") == "message":
            found.append(["message", [part.get("text") for part in objects(item.get("content"))]])
        elif item.get("type") != "reasoning":
            found.append([item.get("type"), item.get("name"), item.get("arguments"), item.get("input")])
    return found


class ResponseRecorder:
    """Whole where `response.completed` came last (but for `[DONE]`), its response is, and events came in order."""

    def __init__(self, choices: int, usage: bool, most_tokens: int = 0) -> None:
        self.tokens = 0
        self._why, self._last = "", -1
        self._response: Mapping[str, Any] | None = None
        self._done = False

    def see(self, event: Event) -> None:
        if event.data is None:
            return None
        if self._done:
            return self._refuse("malformed-answer")
        if event.data == DONE:
            self._done = True
            return None
        told = read_object(event.data)
        kind = None if told is None else told.get("type")
        if told is None or not isinstance(kind, str) or self._response is not None:
            return self._refuse("malformed-answer")
        if kind in _BROKEN:
            return self._refuse(_BROKEN[kind])
        number = told.get("sequence_number", self._last + 1)
        if not isinstance(number, int) or number <= self._last:
            return self._refuse("malformed-answer")
        self._last = number
        if kind == "response.completed":
            response = told.get("response")
            self._response = response if isinstance(response, dict) else {}
            self.tokens = tokens(self._response)
        return None

    def _refuse(self, why: str) -> None:
        self._why = self._why or why

    def flaw(self) -> str:
        if self._why:
            return self._why
        return "unfinished" if self._response is None else flaw(self._response)

    def gist(self) -> list[Any]:
        return gist(self._response)


ROUTES: dict[tuple[str, str], Route] = {
    ("POST", PATH): Reuse(Dialect(PATH, responses, flaw, tokens, gist, ResponseRecorder))
}
