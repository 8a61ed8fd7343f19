"""`mmcache serve` as a model provider of RAGFlow: which addresses to enter, and the entry of its list of factories.

RAGFlow knows providers by name and has code for each, so a new name cannot be added by configuration alone; its
`OpenAI-API-Compatible` takes any address. What its clients send, and where to, is in the how-to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from mmcache.model.errors import SettingsError

FACTORY = "OpenAI-API-Compatible"
KINDS = ("chat", "embedding", "rerank", "image2text", "speech2text")
"""RAGFlow's `model_type`s that `mmcache serve` has routes for."""

_TAGS = {
    "chat": "LLM,CHAT", "embedding": "TEXT EMBEDDING", "rerank": "RE-RANK", "image2text": "LLM,IMAGE2TEXT",
    "speech2text": "SPEECH2TEXT",
}  # fmt: skip


def addresses(proxy: str) -> dict[str, str]:
    """What to enter as "Base url" in RAGFlow, by kind of model. proxy: where `mmcache serve` listens.

    No slash at the end: RAGFlow joins `v1` to it. Rerank needs the whole path: versions differ in what they add.
    Raises `SettingsError` for what is no address.
    """
    parts = urlsplit(proxy)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise SettingsError(f"an address is http://host:port, not {proxy!r}")
    if parts.username or parts.password:
        raise SettingsError("an address holds no password: enter the API key in RAGFlow's own field")
    root = f"{parts.scheme}://{parts.netloc}" + parts.path.rstrip("/").removesuffix("/v1")
    return {kind: f"{root}/v1/rerank" if kind == "rerank" else f"{root}/v1" for kind in KINDS}


def provider_entry(**models: Iterable[str] | dict[str, int]) -> dict[str, Any]:
    """The entry for `conf/llm_factories.json` (in `factory_llm_infos`) that names the models behind the proxy.

    >>> provider_entry(chat={"qwen3": 32768}, embedding=["bge-m3"])["llm"][0]["llm_name"]
    'qwen3'

    By kind: names, or names with the most tokens of their input (8192 where it is not said). Raises `SettingsError`.
    """
    if unknown := models.keys() - set(KINDS):
        raise SettingsError(f"no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    rows = []
    for kind, names in models.items():
        sizes = names if isinstance(names, dict) else dict.fromkeys(names, 8192)
        for name, tokens in sizes.items():
            row = {"llm_name": name, "tags": _TAGS[kind], "max_tokens": tokens, "model_type": kind}
            rows.append(row | ({"is_tools": True} if kind == "chat" else {}))
    tags = ",".join(_TAGS[kind] for kind in models)
    return {"name": FACTORY, "logo": "", "tags": tags, "status": "1", "rank": "890", "llm": rows}
