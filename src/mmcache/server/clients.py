"""What kind of client asks: its `user-agent`, cut down to a word of few (`openai-python/2.8`, `curl/8.5`, `other`)."""

from __future__ import annotations

import re
from functools import lru_cache

from mmcache.attribution import Attribution

OTHER = "other"
LONGEST = 256
"""Bytes of a `user-agent` that are looked at, and remembered."""
MOST_WORDS = 512
"""Different ones that a process tells apart; later ones lose their version."""

_KNOWN = {
    "aiohttp", "apache-httpclient", "axios", "bun", "curl", "deno", "go-http-client", "guzzlehttp", "java-http-client",
    "kube-probe", "litellm", "node", "node-fetch", "okhttp", "postmanruntime", "prometheus", "python-httpx",
    "python-requests", "python-urllib", "python-urllib3", "reqwest", "ruby", "undici", "vllm", "wget",
}  # fmt: skip
_OPENAI = re.compile(rb"(?:Async)?(?:Azure)?OpenAI/(Python|JS|Java|Go|Ruby) ([^ ]*)")
_VERSION = re.compile(rb"v?(\d{1,3}(?:\.\d{1,3})?)(?!\d)", re.A)
_words: set[str] = set()


@lru_cache(4096)
def word(agent: bytes | None) -> str:
    """Of a product that is known, with the first two numbers of its version; nothing else of what a client writes."""
    if not agent:
        return ""
    if (openai := _OPENAI.match(agent)) is not None:
        return _told(f"openai-{openai[1].decode().lower()}", openai[2])
    for product in agent[:LONGEST].split(b" ")[:4]:  # `Python/3.11 aiohttp/3.12`
        name, _, version = product.partition(b"/")
        if name == b"Mozilla":  # every browser says 5.0
            return "browser"
        if (known := name.decode("latin-1").lower()) in _KNOWN:
            return _told(known, version)
    return OTHER


def _told(name: str, version: bytes) -> str:
    found = _VERSION.match(version)
    if found is None:
        return name
    told = f"{name}/{found[1].decode()}"
    if told not in _words:
        if len(_words) >= MOST_WORDS:
            return name
        _words.add(told)
    return told


@lru_cache(4096)
def attribution(route: str, agent: bytes | None, region: str) -> Attribution:
    """Whom a request's lookups are attributed to."""
    return Attribution(route, word(agent), region)
