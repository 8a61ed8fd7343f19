"""Resources for the operator's tests."""

from __future__ import annotations

from typing import Any

from mmcache.operator.names import API_VERSION, KIND
from mmcache.operator.resource import Wish, understood


def resource(spec: dict[str, Any] | None = None, name: str = "shared", **metadata: Any) -> dict[str, Any]:
    """As a user would have written it, and the API server given back."""
    told = {"name": name, "namespace": "inference", "uid": "u-1", "generation": 3, **metadata}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": told, "spec": spec or {}}


def wish(**spec: Any) -> Wish:
    """The same, understood."""
    return understood(resource(spec))
