"""Answers that the proxy gives by itself: errors in OpenAI's form, JSON, and what goes on from the upstream."""

from __future__ import annotations

from typing import Any

import msgspec

from mmcache.model.errors import ProxyError
from mmcache.server.exchange import Answered, Verdict

JSON = (b"content-type", b"application/json")
_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


def json_answer(found: Any, status: int = 200, *extra: tuple[bytes, bytes]) -> Answered:
    """`found` as JSON, of the proxy's own."""
    return Answered(status, [JSON, *extra], msgspec.json.encode(found), Verdict("pass", "own"))


def refusal(error: ProxyError, verdict: Verdict | None = None) -> Answered:
    """`error` as OpenAI's clients expect it."""
    kind = _KINDS.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    body = {"error": {"message": str(error), "type": kind, "param": None, "code": error.code}}
    answered = json_answer(body, error.status)
    answered.verdict = verdict or Verdict("bypass", error.code.replace("_", "-"))
    if error.status == 401:
        answered.headers.append((b"www-authenticate", b"Bearer"))
    return answered


async def throw_away(answered: Answered) -> None:
    """Close a body that comes in pieces and that nobody will read."""
    close = getattr(answered.body, "aclose", None)
    if close is not None:
        await close()
