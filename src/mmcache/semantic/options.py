"""How a prompt is asked: the keyword arguments of `Cache.ask`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

from mmcache.model.errors import SettingsError
from mmcache.settings import parse_ttl

if TYPE_CHECKING:
    from mmcache.model.signature import Signature
    from mmcache.semantic.alias import Alias

SourceKind = Literal["document", "tool", "prompt", "model", "image", "audio"]
"""What an answer may rest on."""


class AskOptions(TypedDict, total=False):
    """Explained at `Cache.ask`."""

    model: Required[str | Signature | Alias]
    tenant: str | None
    namespace: str | None
    ttl: float | None
    bypass: bool


def check_options(options: AskOptions) -> None:
    """Before anything is looked up. Raises `SettingsError`, and `TypeError` like any call with wrong keywords."""
    given: dict[str, Any] = dict(options)
    if unknown := given.keys() - AskOptions.__annotations__.keys():  # a misspelt tenant must not become none
        raise TypeError(f"ask() has no option {', '.join(sorted(unknown))}")
    if "model" not in given:
        raise TypeError("ask() needs model=…")
    if not given["model"]:
        raise SettingsError("model=… names the model and its version, or answers of two would be mixed up")
    parse_ttl(given.get("ttl"))
