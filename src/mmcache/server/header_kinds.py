"""What each request header means to the proxy. What is not named here may change an answer, and counts as part of the
realm: two requests that differ in it share nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

HARMLESS: Final = 0
"""Goes along, and changes no answer: who asks, how it is traced, how it came here."""
CREDENTIAL: Final = 1
CONNECTION: Final = 2
TYPE: Final = 3
ACCEPT: Final = 4
CONTROL: Final = 5
PRAGMA: Final = 6
ENCODING: Final = 7
OURS: Final = 8
"""`x-mmcache-…`: never goes along."""
VARIES: Final = 9
AGENT: Final = 10
FRONT_REGION: Final = 11
"""`x-mmcache-region`, which only a front proxy that has proved itself may send."""
REGION: Final = 12
"""The operator's `trust.region_header`; whether it is harmless as well is another question."""

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate te trailer transfer-encoding upgrade".split()
) | {b"proxy-authorization"}
"""Of one connection only (RFC 9110, section 7.6.1)."""

WRITTEN_ANEW = frozenset({b"host", b"content-length", b"expect"})

CREDENTIALS = (b"authorization", b"api-key", b"x-api-key")

TENANT, FRONT_TOKEN, FRONT_REGION_NAME = b"x-mmcache-tenant", b"x-mmcache-front-token", b"x-mmcache-region"
SESSION = b"x-mmcache-session"
LONGEST_SESSION = 128
"""Bytes; of a longer one no visits are learned."""

_HARMLESS = (
    b"accept-encoding date from dnt priority upgrade-insecure-requests idempotency-key "
    b"x-client-request-id x-request-id x-correlation-id x-amzn-trace-id x-cloud-trace-context request-id "
    b"traceparent tracestate baggage uber-trace-id b3 x-b3-traceid x-b3-spanid x-b3-parentspanid x-b3-sampled "
    b"x-b3-flags x-datadog-trace-id x-datadog-parent-id x-datadog-sampling-priority sentry-trace "
    b"via forwarded x-forwarded-for x-forwarded-proto x-forwarded-port x-real-ip "
    b"x-envoy-external-address x-envoy-expected-rq-timeout-ms sec-fetch-mode sec-fetch-site sec-fetch-dest "
    b"x-stainless-arch x-stainless-async x-stainless-lang x-stainless-os x-stainless-package-version "
    b"x-stainless-runtime x-stainless-runtime-version x-stainless-retry-count x-stainless-read-timeout "
    b"x-stainless-timeout x-stainless-raw-response x-stainless-helper-method x-stainless-poll-helper"
).split()

_NAME = re.compile(r"[a-z0-9-]{1,64}", re.A)
_FIXED = HOP_BY_HOP | WRITTEN_ANEW | {b"traceparent", b"tracestate", b"baggage", b"cookie"}
_ACCEPTS = frozenset({b"", b"*/*", b"application/json", b"text/event-stream", b"application/json, text/event-stream"})
_TYPES = frozenset({b"", b"application/json", b"application/json; charset=utf-8", b"application/json;charset=utf-8"})


def kinds(harmless: Iterable[str] = (), region: str | None = None) -> dict[bytes, int]:
    """By name. `harmless`: names that the operator vouches for. region: the header that says where a client is."""
    found = dict.fromkeys((*HOP_BY_HOP, *WRITTEN_ANEW, *_HARMLESS), HARMLESS)
    found |= {name.lower().encode(): HARMLESS for name in harmless}
    found |= dict.fromkeys(CREDENTIALS, CREDENTIAL)
    if region is not None:
        found[region.lower().encode()] = REGION
    return found | {
        b"user-agent": AGENT, FRONT_REGION_NAME: FRONT_REGION, b"connection": CONNECTION, b"content-type": TYPE,
        b"accept": ACCEPT, b"cache-control": CONTROL, b"pragma": PRAGMA, b"content-encoding": ENCODING, TENANT: OURS,
        FRONT_TOKEN: OURS,
    }  # fmt: skip


def session(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """What the client says of whose visit this is part; empty: nothing, or nothing that can be used."""
    told = [value for name, value in headers if name == SESSION]
    return told[0].decode("latin-1") if len(told) == 1 and len(told[0]) <= LONGEST_SESSION else ""


def may_tell_region(name: str) -> bool:
    """Whether this header means nothing else to the proxy."""
    lower = name.lower()
    known = kinds().get(lower.encode(), VARIES) in (HARMLESS, VARIES)
    return bool(_NAME.fullmatch(lower)) and known and lower.encode() not in _FIXED and not lower.startswith("x-mmcache")


def plain_accept(value: bytes) -> bool:
    """Whether it asks for nothing but what these routes send."""
    return value.lower() in _ACCEPTS


def plain_type(value: bytes) -> bool:
    """Whether it is JSON, or a form, whose `content-type` its route reads."""
    lower = value.lower()
    return lower in _TYPES or lower.startswith(b"multipart/form-data;")


def without_hops(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """What may go on to the next hop: neither the hop-by-hop headers nor those that `Connection` names, nor ours."""
    listed = list(headers)
    named = {
        token.strip().lower() for name, value in listed if name == b"connection" for token in value.split(b",")
    }  # fmt: skip
    dropped = HOP_BY_HOP | named if named else HOP_BY_HOP
    return [pair for pair in listed if pair[0] not in dropped and not pair[0].startswith(b"x-mmcache")]
