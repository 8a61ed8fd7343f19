"""Every field of `/v1/embeddings`, `/rerank` and `/score` that is known: OpenAI's, vLLM's, Cohere's and Jina's.

Left out are only those that mean the same for each item of a batch, whatever else is in it: `late_chunking` makes one
text of all, so it is not known here, and such a request is not cached.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mmcache.server.canonical.chat import medium, text_part
from mmcache.server.canonical.chat_fields import TEXT_PARTS
from mmcache.server.canonical.fields import DROPPED, KEPT, NULL, OPTIONAL, Field, by_name, bypasses, only
from mmcache.server.canonical.request import Media, Place, RefusedError

_POOLING: Final[dict[str, Field]] = {
    "truncate_prompt_tokens": OPTIONAL,
    "truncation_side": OPTIONAL,
    "padding": OPTIONAL,
    "mm_processor_kwargs": Field(by_name, NULL),
    "use_activation": OPTIONAL,
    "chat_template": OPTIONAL,
    "chat_template_kwargs": Field(by_name, NULL),
    "media_io_kwargs": Field(by_name, NULL),
    "cache_salt": OPTIONAL,  # who keeps its prefixes apart from others' wants its answers apart, too
    # Neither of these changes a number.
    "user": DROPPED,
    "priority": DROPPED,
    "request_id": bypasses("request-id"),  # it is said again in the answer
}

EMBEDDINGS: Final[dict[str, Field]] = _POOLING | {
    "dimensions": OPTIONAL,
    "add_special_tokens": KEPT,
    "add_generation_prompt": KEPT,
    "continue_final_message": KEPT,
    "normalize": OPTIONAL,
    "normalized": OPTIONAL,
    "task": OPTIONAL,
    "input_type": OPTIONAL,
    "prompt_name": OPTIONAL,
    "prompt": OPTIONAL,
    "truncate": OPTIONAL,
    "modality": OPTIONAL,
    "drop_params": OPTIONAL,  # LiteLLM's; RAGFlow sends it with every batch
    # How numbers are written: only float32, as `vectors` reads it.
    "embed_dtype": bypasses("encoding-format", "float32"),
    "endianness": bypasses("encoding-format", "native", "little"),
}

SCORING: Final[dict[str, Field]] = _POOLING | {
    "activation": OPTIONAL,
    "softmax": OPTIONAL,
    "instruction": OPTIONAL,
    "max_tokens_per_query": OPTIONAL,
    "max_tokens_per_doc": OPTIONAL,
    "return_documents": OPTIONAL,
    "truncation": OPTIONAL,
}

_MESSAGE: Final = frozenset(("role", "content", "name"))


def content(found: Any, place: Place, media: list[Media]) -> Any:
    """Text, or a list of parts, for a key; what is to be identified is added to `media`. Raises `RefusedError`."""
    if isinstance(found, str):
        return found
    if not isinstance(found, list):
        raise RefusedError("malformed")
    told = []
    for number, part in enumerate(found):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise RefusedError("unknown-part")
        told.append(text_part(part, TEXT_PARTS) or medium(part, (*place, number), media))
    return told


def conversation(found: Any, place: Place, media: list[Media]) -> Any:
    """A list of messages, for a key. Raises `RefusedError`."""
    if not isinstance(found, list) or not found:
        raise RefusedError("malformed")
    told = []
    for number, message in enumerate(found):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise RefusedError("malformed")
        only(message, _MESSAGE)
        inside = content(message.get("content"), (*place, number, "content"), media)
        told.append({**{name: message[name] for name in sorted(message)}, "content": inside})
    return told


def scored(found: Any, place: Place, media: list[Media]) -> Any:
    """A text, or `{"content": […]}`, for a key. Raises `RefusedError`."""
    if isinstance(found, str):
        return found
    if not isinstance(found, Mapping) or found.keys() != {"content"}:
        raise RefusedError("unknown-part")
    return {"content": content(found["content"], (*place, "content"), media)}
