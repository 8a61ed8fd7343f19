"""The webhook: RAGFlow, or whoever feeds it, says what has changed, and what rests on that is out of reach.

RAGFlow itself sends nothing when a dataset changes: a step of an agent (its HTTP request), or the script that uploads
documents, must. `webhook.schema.json` beside this file is the form of a message.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from blake3 import blake3

from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.model.errors import MMCacheError, SettingsError
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.model.signature import Signature

if TYPE_CHECKING:
    from mmcache.cache import Cache

PATH = "/mmcache/webhooks/ragflow"
"""Where `mmcache serve` receives it."""
LARGEST_BYTES = 64 << 10
TOLERANCE_SECONDS = 300.0
"""A message is as old at most, by its own clock; and for so long (twice) its id is remembered."""
SIGNATURE_HEADER = "x-mmcache-signature"
SCHEMA_FILE = Path(__file__).with_name("webhook.schema.json")

_SEEN = Signature(function="mmcache.integrations.ragflow.webhook", model_version="1", modality="text")
_MISSING = object()

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Id = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")]


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="event", kw_only=True):
    dataset_id: Name
    id: Id | None = None
    """Another for each message; the same when it is sent again. A signed message has one."""
    time: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Seconds since 1970, when it was made."""
    tenant: Name | None = None
    """Whose answers too, besides those of the cache's own tenant."""


class DocumentChanged(_Message, frozen=True, forbid_unknown_fields=True, tag="document.changed", kw_only=True):
    """Documents of a dataset were added, parsed anew, edited, switched on or off, or deleted."""

    document_ids: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=1000)]


class DatasetChanged(_Message, frozen=True, forbid_unknown_fields=True, tag="dataset.changed", kw_only=True):
    """Anything of a dataset has changed: its settings, its embedding model, any of its documents; or it was deleted."""


Event = DocumentChanged | DatasetChanged
_decoder = msgspec.json.Decoder(Event)

Answer = tuple[int, dict[str, Any]]
"""HTTP status, and the body as JSON."""


def receive(
    body: bytes, headers: Mapping[str, str], secret: str, cache: Cache, now: float, *, tenant: str | None = None
) -> Answer:
    """Take one message. `headers`: names in lower case. `now`: seconds since 1970. tenant: whose sources these are;
    None = the cache's own. Never raises for what was sent.

    It is believed with `x-mmcache-signature: t=<seconds>,v1=<hex>`, the HMAC-SHA256 with the secret of `<t>.` and the
    body (see `sign`), or with `authorization: Bearer <secret>` for senders that cannot sign (RAGFlow's HTTP request).
    Signed, it is refused when older than five minutes, and does nothing when sent again. Raises `SettingsError` for a
    weak secret.
    """
    check_secret(secret)
    if len(body) > LARGEST_BYTES:
        return _refused(413, "too-large", f"a message has {LARGEST_BYTES} bytes at most; send several")
    if (why := _unbelieved(body, headers, secret, now)) is not None:
        return _refused(401, "unauthorized", why)
    try:
        event: Event = _decoder.decode(body)
    except msgspec.ValidationError as error:
        return _refused(400, "invalid", f"{error}; see webhook.schema.json")
    except msgspec.DecodeError as error:
        return _refused(400, "invalid", f"the body is no JSON: {error}")
    except RecursionError:
        return _refused(400, "invalid", "the body is nested too deeply; see webhook.schema.json")
    if event.id is None and SIGNATURE_HEADER in headers:
        return _refused(400, "invalid", "a signed message has an id, another for each")
    if event.time is not None and not abs(now - event.time) <= TOLERANCE_SECONDS:
        return _refused(401, "too-old", "the message's time is more than five minutes from ours; send it anew")
    return _taken(event, body, cache, cache.tenant if tenant is None else tenant)


def check_secret(secret: str) -> None:
    """Raises `SettingsError` for a weak one."""
    if not isinstance(secret, str) or len(secret) < 16:
        raise SettingsError("the webhook's secret has 16 characters at least; make one with `openssl rand -hex 32`")


def sign(body: bytes, secret: str, now: float) -> str:
    """The value of `x-mmcache-signature` for a message that is sent at `now`, seconds since 1970."""
    return f"t={int(now)},v1={_mac(body, secret, str(int(now)))}"


def schema() -> dict[str, Any]:
    """The JSON schema of a message; what `webhook.schema.json` holds."""
    found = msgspec.json.schema(Event)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "What changed in RAGFlow"}
    return head | found


def _refused(status: int, code: str, message: str) -> Answer:
    return status, {"error": {"code": code, "message": message}}


def _mac(body: bytes, secret: str, time: str) -> str:
    return hmac.new(secret.encode(), time.encode() + b"." + body, hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def _unbelieved(body: bytes, headers: Mapping[str, str], secret: str, now: float) -> str | None:
    """Why it is not believed; None = it is."""
    signature = headers.get(SIGNATURE_HEADER)
    if signature is not None:  # who signs is held to it: a bad signature is not saved by a token
        parts = dict(part.strip().partition("=")[::2] for part in signature.split(",")[:8])
        time = parts.get("t", "")
        if not (time.isascii() and time.isdigit() and len(time) < 16) or abs(now - int(time)) > TOLERANCE_SECONDS:
            return "the signature's time is missing, or more than five minutes from ours"
        return None if _same(parts.get("v1", ""), _mac(body, secret, time)) else "the signature is not right"
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and _same(token.strip(), secret):
        return None
    return f"send {SIGNATURE_HEADER}, or authorization: Bearer"


def _taken(event: Event, body: bytes, cache: Cache, tenant: str) -> Answer:
    scope = cache.scopes.of(_SEEN, tenant, cache.namespace)
    # The whole message: another one of the same id says something else, and must not be taken for it.
    seen = Key(scope.digest, blake3(framed("message", body), key=scope.salt).digest(length=DIGEST_BYTES))
    try:
        if event.id is not None and cache.get(seen, _MISSING) is not _MISSING:
            return 200, {"status": "duplicate", "dropped": 0}
        names = [event.dataset_id, *(event.document_ids if isinstance(event, DocumentChanged) else ())]
        dropped = 0
        for realm in dict.fromkeys([tenant, event.tenant or tenant]):
            for name in names:
                dropped += cache.changed("document", name, tenant=realm)
        cache.put(seen, 1, ttl=2 * TOLERANCE_SECONDS)
    except MMCacheError as error:
        cache.events.emit(Failed("ragflow", f"a change could not be written down: {error}"))
        return _refused(503, "unavailable", "the change could not be written down; send it again")
    return 200, {"status": "ok", "dropped": dropped}
