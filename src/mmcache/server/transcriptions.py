"""`/v1/audio/transcriptions` and `/v1/audio/translations`: a file and a form → words, as text, JSON or subtitles.

    form → (or bypass) → file by its exact bytes, all other fields → key → stored answer, call under way, or upstream

Temperature 0 is the default of OpenAI's Whisper and of vLLM, and counts as deterministic. OpenAI's raises it by itself
where it is unsure: there, two answers for one file may differ, and the stored one is one it gave. Streams pass through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from blake3 import blake3

from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.model.errors import ProxyError
from mmcache.model.event import MissReason
from mmcache.model.key import Key
from mmcache.server.answers import refusal
from mmcache.server.answers_stored import (
    LARGEST_BYTES,
    VERSION,
    Stored,
    forbids,
    kept_headers,
    media_type,
    read_object,
    tokens,
)
from mmcache.server.calls import Call, calls_of
from mmcache.server.exchange import Answered, Asked, BypassedError, Headers, Proxy, Route, Verdict
from mmcache.server.media.identity import INLINE_BYTES, digests
from mmcache.server.media.multipart import Field, read
from mmcache.server.shelf import Found, age, check_due, keep, look_up, signed

_LISTS = frozenset(
    ("timestamp_granularities[]", "timestamp_granularities", "include[]", "known_speaker_names[]",
     "known_speaker_references[]")
)  # fmt: skip
"""Fields that may be given several times."""
_FIELDS = _LISTS | frozenset(
    ("file", "model", "language", "prompt", "response_format", "temperature", "stream", "chunking_strategy", "seed",
     "to_language", "top_p", "top_k", "min_p", "frequency_penalty", "repetition_penalty", "presence_penalty",
     "max_completion_tokens", "vad_filter", "hotwords")
)  # fmt: skip
_NO = frozenset((b"false", b"False", b"0"))
_TREES = frozenset((b"json", b"verbose_json", b"diarized_json"))


@dataclass(frozen=True, slots=True)
class Form:
    """What is asked for."""

    model: str
    response_format: bytes
    file: Field = field(repr=False)
    rest: tuple[tuple[str, bytes], ...] = field(repr=False)
    """All other fields by name; of equal names in their order."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What became of a call."""

    status: int
    headers: Headers
    body: bytes = field(repr=False)
    stored: Stored | None = field(repr=False)


class Transcriptions:
    """The route of one of the two paths."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def __call__(self, asked: Asked, proxy: Proxy) -> Answered:
        """See `exchange.Route`."""
        form, key = await self._wanted(asked, proxy)
        wants, cache = asked.directives, proxy.cache
        found = Found(None, MissReason.BYPASSED) if wants.no_cache else await look_up(cache, key)
        stored, reason, checked = found.stored, found.reason, check_due(asked, proxy)
        if stored is not None and not checked:
            old = age(cache, stored)
            if wants.max_age is None or old <= wants.max_age:
                verdict = Verdict("hit", "", stored.took, age_seconds=old, saved_tokens=stored.tokens)
                return Answered(200, list(stored.headers), stored.body, verdict, form.model)
            reason = MissReason.EXPIRED
        if wants.only_if_cached:
            return _not_cached(Verdict("miss", reason))
        if checked and stored is not None:
            told, _ = await _ask(asked, proxy, form, key, joinable=False)
            proxy.compared(asked.path, told.status == 200 and told.body == stored.body)
            return Answered(told.status, told.headers, told.body, Verdict("miss", "shadow"), form.model)
        # Who wants something newer than what is stored, or than anything, joins nobody.
        told, joined = await _ask(asked, proxy, form, key, joinable=stored is None and not wants.no_cache)
        if joined and told.stored is not None and not checked:
            verdict = Verdict(
                "hit", "joined", told.stored.took, age_seconds=age(cache, told.stored), saved_tokens=told.stored.tokens
            )
            return Answered(200, kept_headers(told.headers), told.body, verdict, form.model)
        if joined:  # what another was refused, or must not be kept, is not for this one
            told, _ = await _ask(asked, proxy, form, key, joinable=False)
        return Answered(told.status, told.headers, told.body, Verdict("miss", reason), form.model)

    async def _wanted(self, asked: Asked, proxy: Proxy) -> tuple[Form, Key]:
        if asked.directives.no_store:
            raise BypassedError("no-store")
        if proxy.cache.mode == "off":
            raise BypassedError("off")
        made, cache, settings = digests(proxy), proxy.cache, proxy.settings

        def identified() -> tuple[Form, bytes]:
            form = form_of(read(asked), sampled=asked.rules.sampled)
            return form, made.exact("file", form.file.value, asked.realm)

        if len(asked.body) > INLINE_BYTES:
            form, file = await asyncio.to_thread(identified)
        else:
            form, file = identified()
        signature = signed(settings, self._path, "form", form.model)
        scope = cache.scopes.of(signature, *asked.realm)
        told = key_bytes(form, file)
        return form, Key(scope.digest, blake3(told, key=scope.salt).digest(length=DIGEST_BYTES))


def form_of(fields: list[Field], *, sampled: bool = False) -> Form:
    """The form that `fields` are. Raises `BypassedError` for one that may not be cached."""
    found: dict[str, list[Field]] = {}
    for one in fields:
        found.setdefault(one.name, []).append(one)
        if one.name not in _FIELDS:
            raise BypassedError("unknown-field")
        if (one.filename is not None) != (one.name == "file"):
            raise BypassedError("odd-form")
    if any(len(same) > 1 and name not in _LISTS for name, same in found.items()):
        raise BypassedError("odd-form")
    if "file" not in found or "model" not in found:
        raise BypassedError("malformed")
    if "stream" in found and found.pop("stream")[0].value not in _NO:
        raise BypassedError("stream")
    if "temperature" in found and _deterministic(found["temperature"][0].value):
        del found["temperature"]
    elif "temperature" in found and "seed" not in found and not sampled:
        raise BypassedError("not-deterministic")
    try:
        model = found.pop("model")[0].value.decode()
    except UnicodeDecodeError as error:
        raise BypassedError("malformed") from error
    if not 0 < len(model) <= 512:
        raise BypassedError("malformed")
    response_format = found.pop("response_format")[0].value if "response_format" in found else b"json"
    file = found.pop("file")[0]
    rest = tuple((name, one.value) for name in sorted(found) for one in found[name])
    return Form(model, response_format, file, rest)


def key_bytes(form: Form, file: bytes) -> bytes:
    """Equal exactly for forms that must get the same answer. file: the identity of the file's bytes.

    Of its name only what comes after the last dot: decoders are chosen by it.
    """
    name = form.file.filename or b""
    ending = name.rpartition(b".")[2] if b"." in name else b""
    rest = [piece for label, value in form.rest for piece in (label.encode(), value)]
    return framed("transcription", file, ending, form.file.kind, form.response_format, *rest)


def flaw(form: Form, status: int, headers: Headers, body: bytes) -> str:
    """Why an answer must not be kept; empty where it may be."""
    if status != 200:
        return "error"
    if len(body) > LARGEST_BYTES:
        return "too-large"
    if why := forbids(headers):
        return why
    kind = media_type(headers)
    if form.response_format in _TREES:
        answer = read_object(body) if kind == b"application/json" else None
        if answer is None or answer.get("error") is not None or not isinstance(answer.get("text"), str):
            return "malformed-answer"
        return ""
    answer = read_object(body)
    if kind in (b"", b"text/event-stream", b"text/html") or (answer is not None and "error" in answer):
        return "malformed-answer"
    return ""


def _deterministic(temperature: bytes) -> bool:
    try:
        return float(temperature) == 0.0
    except ValueError:
        raise BypassedError("malformed") from None


async def _ask(asked: Asked, proxy: Proxy, form: Form, key: Key, *, joinable: bool) -> tuple[_Told, bool]:
    """What the upstream says, and whether somebody else had asked. Raises `UpstreamError`."""
    calls = calls_of(proxy)
    call = calls.find(key) if joinable else None
    if joined := call is not None:
        told = await call.head()
    else:
        call = calls.begin(key if joinable else None, partial(_run, asked, proxy, form, key))
        told = await call.head()
    call.left()
    assert isinstance(told, _Told)
    return told, joined


async def _run(asked: Asked, proxy: Proxy, form: Form, key: Key, call: Call) -> None:
    cache = proxy.cache
    began, since = cache.clock.monotonic(), cache.answers.moment
    reply = await proxy.upstream.send(asked.method, asked.path, asked.query, asked.headers, asked.body)
    try:
        body = await reply.read()
    finally:
        await reply.close()
    call.over = True
    stored = None
    if not flaw(form, reply.status, reply.headers, body):
        took = cache.clock.monotonic() - began
        told = tokens(read_object(body)) if form.response_format in _TREES else 0
        stored = Stored(VERSION, cache.clock.wall(), took, told, kept_headers(reply.headers), body)
    call.tell(_Told(reply.status, reply.headers, body, stored))
    if stored is not None:
        await keep(cache, key, stored, asked.rules.ttl_seconds, since)


def _not_cached(verdict: Verdict) -> Answered:
    return refusal(ProxyError("nothing is stored for this request", status=504, code="not-cached"), verdict)


ROUTES: Mapping[tuple[str, str], Route] = {
    ("POST", path): Transcriptions(path) for path in ("/v1/audio/transcriptions", "/v1/audio/translations")
}
"""By method and path."""
