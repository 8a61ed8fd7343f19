"""What LangChain says of a call to a model, and whether that is enough to look the answer up.

LangChain's own key is two texts: the prompt, and the model with its parameters. They leave things out. A model class
that does not say which parameters identify it is only a class name; an object that cannot be serialised is only its
type, or an address in memory; a picture behind an address may be another one tomorrow. Such calls are passed by.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import Any, Literal

from mmcache.model.errors import InvalidInputError

Pictures = Literal["exact", "pixels"]

_NOT_SERIALISED = '"type": "not_implemented"'
_OBJECT = re.compile(r"\bat 0x[0-9a-fA-F]{4,}>|<(?:class|function|bound method|module|built-in|generator|coroutine)\b")
_NAMES_A_MODEL = re.compile(
    r"""['"](?:model|model_name|model_id|repo_id|deployment_name|azure_deployment|deployment|model_path|endpoint_url)"""
    r"""['"]\s*[:,]\s*['"][^'"]"""
)
_TEMPERATURE = re.compile(r"""['"]temperature['"]\s*[:,]\s*([0-9.eE+-]+|None|null)""")
_SEED = re.compile(r"""['"]seed['"]\s*[:,]\s*-?[0-9]""")
_ADDRESS = re.compile(r"^(?!data:)[a-zA-Z][a-zA-Z0-9+.-]*:(?://|(?=[^ ]+$)(?=.*/))")
_LOCATION = re.compile(r"(?:^|_)(?:url|uri|path)$", re.I)
_MAY_LOCATE = re.compile(r'://|"[a-z_]*(?:url|uri|path)": ', re.I)
_ENCODED = re.compile(r"^[A-Za-z0-9+/_=\s-]{100,}$")
_DATA_URL = re.compile(r"^data:image/[a-zA-Z0-9.+-]+;base64,", re.I)
_MEDIA = re.compile(r"image|audio|video|file|media|document|pdf", re.I)


def why_not(prompt: str, llm: str, *, named: bool, deterministic_only: bool, remote_media: bool) -> str:
    """Why a call is not looked up: empty = it is.

    named: whether the cache's owner says which model it is.
    """
    if _NOT_SERIALISED in llm or _OBJECT.search(llm):
        return "parameters"  # two that differ may look equal
    if not (named or _NAMES_A_MODEL.search(llm)):
        return "unnamed-model"
    if deterministic_only and not deterministic(llm):
        return "not-deterministic"
    if _is_messages(prompt):
        if _NOT_SERIALISED in prompt:
            return "message"
        if not remote_media and _MAY_LOCATE.search(prompt) and any(map(_remote, _parts(json.loads(prompt)))):
            return "remote-media"
    return ""


def deterministic(llm: str) -> bool:
    """Whether the parameters give a seed, or temperature 0; those of the call stand before those of the model."""
    model, _, call = llm.rpartition("---")
    for text in (call, model):
        if _SEED.search(text):
            return True
        if found := _TEMPERATURE.findall(text):
            return found[-1] not in ("None", "null") and float(found[-1]) == 0.0
    return False


def by_pixels(prompt: str, picture: Callable[[bytes], str]) -> str:
    """The prompt with what each embedded picture *is* (see `picture`) in place of its file."""
    if not _is_messages(prompt):
        return prompt
    return json.dumps(_replaced(json.loads(prompt), picture))


def _is_messages(prompt: str) -> bool:
    """Whether it is a chat model's prompt, which LangChain has serialised; a plain one only may look like that."""
    return prompt.startswith('[{"lc": 1,')


def _parts(node: Any) -> list[dict[str, Any]]:
    """All dicts that are media of a message."""
    if isinstance(node, list):
        return [part for item in node for part in _parts(item)]
    if not isinstance(node, dict):
        return []
    found = [part for item in node.values() for part in _parts(item)]
    kind = node.get("type")
    media = isinstance(kind, str) and _MEDIA.search(kind) is not None
    return [node, *found] if media or any(_MEDIA.search(str(name)) for name in node) else found


def _remote(part: Any, name: str = "") -> bool:
    """Whether a media part names an address or a file, at any depth."""
    if isinstance(part, str):
        place = _LOCATION.search(name) is not None and not part.startswith("data:") and not _ENCODED.match(part)
        return place or _ADDRESS.match(part) is not None
    if isinstance(part, list):
        return any(_remote(item, name) for item in part)
    if not isinstance(part, dict):
        return False
    return any(_remote(value, key) for key, value in part.items() if key not in ("text", "type", "mime_type", "id"))


def _replaced(node: Any, picture: Callable[[bytes], str]) -> Any:
    if isinstance(node, list):
        return [_replaced(item, picture) for item in node]
    if isinstance(node, dict):
        kept = {name: _replaced(value, picture) for name, value in node.items()}
        for name in ("base64", "data"):
            if node.get("type") == "image" and isinstance(node.get(name), str):
                kept[name] = _identity(node[name], picture)
        return kept
    if isinstance(node, str) and (head := _DATA_URL.match(node)):
        return _identity(node[head.end() :], picture, otherwise=node)
    return node


def _identity(encoded: str, picture: Callable[[bytes], str], otherwise: str | None = None) -> str:
    try:
        return picture(base64.b64decode(encoded, validate=True))
    except (binascii.Error, InvalidInputError, ValueError):  # by its text, exactly
        return encoded if otherwise is None else otherwise
