"""`signature_of`: which model a framework's component is, in which version, with which settings."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from blake3 import blake3

from mmcache.integrations.framework.described import described
from mmcache.keys.signing import Signature
from mmcache.model.errors import InvalidInputError, UnversionedModelError

_STATED = (
    "model_name", "model", "model_id", "repo_id", "deployment_name", "azure_deployment", "deployment", "model_path",
)  # fmt: skip


def signature_of(component: Any, given: Signature | str | None, role: str) -> Signature:
    """Of what `component` computes in this `role`: its configuration, and the model that it states or its caller names.

    Raises `UnversionedModelError` where neither names a model.
    """
    function = f"{role} {type(component).__module__}.{type(component).__qualname__}"
    try:
        made_of = blake3(described(component, releases=False).encode()).hexdigest()[:32]
    except UnversionedModelError:
        if given is None:
            raise
        made_of = ""
    if given is not None:
        if isinstance(given, str) and not given:
            raise UnversionedModelError("signature='' names no version; pass e.g. signature='my-model 1.0'")
        found = Signature.of(given)
        function, made_of = f"{function} {found.function}".strip(), f"{found.preprocess} {made_of}".strip()
        return dataclasses.replace(found, function=function, preprocess=made_of)
    stated = stated_model(component)
    if stated is None:
        raise UnversionedModelError(
            f"nothing says which model {type(component).__name__} is, and in which version: pass signature='name 1.0', "
            "and change it whenever the vectors may change"
        )
    return Signature(model_version=f"{stated} {weights(stated)}".strip(), function=function, preprocess=made_of)


def stated_model(component: Any) -> str | None:
    """The model's name, as the component states it; None where it states none."""
    for name in _STATED:
        value = getattr(component, name, None)
        if isinstance(value, str) and value and value.lower() not in ("unknown", "default"):
            return value
    return None


def weights(name: str) -> str:
    """Of a model's name that is a path: its files' digest (which is remembered while they stay as they are)."""
    path = Path(name)
    try:
        return Signature.of(path).model_version if path.exists() else ""
    except (InvalidInputError, UnversionedModelError, OSError, ValueError):  # no path, or none of weights
        return ""


def check_alone(component: Any) -> None:
    """Raises `UnversionedModelError` for a model that embeds passages together with their neighbours: the vector of
    such a passage is not its own."""
    name = f"{type(component).__name__} {stated_model(component) or ''}"
    if getattr(component, "late_chunking", None) or re.search(r"Contextuali[sz]ed|voyage-context", name):
        raise UnversionedModelError(
            f"{type(component).__name__} embeds a passage together with its neighbours (late chunking), so its vector "
            "is not its own and cannot be kept for it: use this model without a cache"
        )
