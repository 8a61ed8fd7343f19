"""`Stored`: an answer at rest. `flaw`: why a whole answer of `/v1/chat/completions` must not be kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mmcache.model.errors import CorruptFrameError
from mmcache.semantic.judge import same_answer
from mmcache.server.exchange import Headers

VERSION = 1
LARGEST_BYTES = 16 << 20
"""Of an answer that is kept; also how far behind a reader of a stream may be."""
ENDS = frozenset(("stop", "tool_calls", "function_call"))
"""Why a model ended that had said all it wanted to. Not `length`, `content_filter`, `abort`, `error`, `repetition`."""
CALLED = frozenset(("tool_calls", "function_call"))
_KEPT = frozenset((b"content-type", b"openai-model", b"openai-version"))


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """An answer that may be given again."""

    version: int
    at: float
    """When it was stored, seconds since the epoch."""
    took: float
    """Seconds that the upstream needed."""
    tokens: int
    """Of its usage; 0 where it tells none."""
    headers: list[tuple[bytes, bytes]]
    """Those that describe the answer, not the exchange."""
    body: bytes
    """Whole; of a stream its events, each of which ends with an empty line."""
    request: bytes = b""
    """16 bytes: the digest of the very request that it answers."""

    def to_bytes(self) -> bytes:
        """What a cache keeps."""
        return _encode(self)

    @classmethod
    def from_bytes(cls, raw: object) -> Stored:
        """Raises `CorruptFrameError` for what this version did not write."""
        try:
            found = _decode(raw)  # type: ignore[arg-type]
        except (msgspec.MsgspecError, TypeError, UnicodeDecodeError) as error:
            raise CorruptFrameError("a stored answer that cannot be read: drop it") from error
        if found.version != VERSION:
            raise CorruptFrameError(f"a stored answer of version {found.version}: drop it")
        return found


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Stored).decode
parse = msgspec.json.decode
"""Of answers: the upstream is trusted more than callers are. Raises `msgspec.DecodeError`, `RecursionError`."""


def kept_headers(headers: Headers) -> Headers:
    """Those that another caller may be given too: no cookies, request ids, limits."""
    return [(name, value) for name, value in headers if name in _KEPT]


def forbids(headers: Headers) -> str:
    """Why the headers of an answer forbid to keep it; empty where they do not."""
    for name, value in headers:
        if name == b"cache-control" and b"no-store" in value.lower():
            return "upstream-no-store"
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            return "encoded"
    return ""


def media_type(headers: Headers) -> bytes:
    """Its content type, without parameters."""
    found = next((value for name, value in headers if name == b"content-type"), b"")
    return found.partition(b";")[0].strip().lower()


def read_object(body: bytes) -> dict[str, Any] | None:
    """A JSON object, or None."""
    try:
        found = parse(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None


def flaw(answer: Mapping[str, Any] | None, choices: int, most_tokens: int = 0) -> str:
    """Why this answer of `/v1/chat/completions` must not be kept; empty where it may be.

    choices: how many it has. most_tokens: that it might have; 0 = that is not known.
    """
    if answer is None:
        return "malformed-answer"
    if answer.get("error") is not None:
        return "error"
    if cites(answer):
        return "web-search"
    found = answer.get("choices")
    if not isinstance(found, list) or not all(isinstance(choice, dict) for choice in found):
        return "malformed-answer"
    if len(found) != choices or {str(choice.get("index")) for choice in found} != {str(at) for at in range(choices)}:
        return "choices-missing"
    if filtered(answer.get("prompt_filter_results")):
        return "content-filter"
    if why := next((why for choice in found if (why := _flaw(choice))), ""):
        return why
    called = any(choice.get("finish_reason") in CALLED for choice in found)
    return "truncated" if called and spent(answer, most_tokens) else ""


def _flaw(choice: Mapping[str, Any]) -> str:
    ended, message = choice.get("finish_reason"), choice.get("message")
    if choice.get("error") is not None:
        return "error"
    if ended not in ENDS:
        return why_ended(ended)
    if not isinstance(message, dict):
        return "malformed-answer"
    if message.get("refusal"):
        return "refusal"
    if message.get("audio") is not None:
        return "audio-output"
    if cites(message):
        return "web-search"
    functions = [call.get("function") for call in objects(message.get("tool_calls"))]
    if not all(map(is_whole, objects([*functions, message.get("function_call")]))):
        return "truncated"
    return "content-filter" if filtered(choice.get("content_filter_results")) else ""


def is_whole(call: Mapping[str, Any]) -> bool:
    """Whether the arguments of a function called are JSON to their end.

    vLLM says `tool_calls` also of an answer that was cut off within them, where others say `length`.
    """
    arguments = call.get("arguments")
    try:
        parse(arguments if isinstance(arguments, str) else b"")
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


def spent(answer: Mapping[str, Any], most_tokens: int) -> bool:
    """Whether its usage says that it had all tokens that it might have, and so may have ended for that."""
    usage = answer.get("usage")
    told = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return isinstance(told, int) and 0 < most_tokens <= told


def cites(told: Mapping[str, Any]) -> bool:
    """Whether an answer, or a message, rests on what was found in a world that changes, as models that search by
    themselves say."""
    return any(told.get(name) for name in ("annotations", "citations", "search_results"))


def why_ended(reason: object) -> str:
    """The reason for a bypass that a `finish_reason` is."""
    return {"length": "truncated", "content_filter": "content-filter"}.get(str(reason), "unfinished")


def filtered(results: Any, levels: int = 8) -> bool:
    """Whether a filter, as Azure tells of them, took anything away; also where its results are too deep to tell."""
    if not isinstance(results, list | dict):
        return False
    if not levels or (isinstance(results, dict) and results.get("filtered") is True):
        return True
    return any(filtered(one, levels - 1) for one in (results.values() if isinstance(results, dict) else results))


def tokens(answer: Mapping[str, Any] | None) -> int:
    """All of its usage."""
    usage = None if answer is None else answer.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if isinstance(total, int) and total >= 0 else 0


def events_of(body: bytes) -> Iterator[bytes]:
    """The events of a stored stream, each as it is sent."""
    start = 0
    while (end := body.find(b"\n\n", start)) >= 0:
        yield body[start : end + 2]
        start = end + 2


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none of anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def gist(answer: Mapping[str, Any] | None) -> list[Any]:
    """What it says, without ids and times: of each choice its words and its calls of tools."""
    found: list[Any] = []
    for choice in objects((answer or {}).get("choices")):
        message = choice.get("message") or {}
        calls = [(call.get("function") or call.get("custom")) for call in objects(message.get("tool_calls"))]
        found.append([choice.get("index"), message.get("content") or "", calls, message.get("function_call")])
    return found


def judge(stored: Any, computed: Any) -> bool | None:
    """For `Semantic(judge=…)` behind the proxy: whether two stored answers say the same; None = it cannot say."""
    try:
        one, other = (gist(read_object(Stored.from_bytes(raw).body)) for raw in (stored, computed))
    except (CorruptFrameError, AttributeError):
        return None
    return same_answer(one, other) if one and other else None
