"""What is made for a resource, and nothing else: what somebody made under the same name stays as it is.

Who may create a `MultimodalCache` need not be allowed to change Services: the operator does not do it for him. Nor
would it be the operator's alone to delete: what a resource owns goes with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmcache.model.errors import KubernetesError
from mmcache.operator.api import Api, Object, Resource
from mmcache.operator.manifests import Manifest
from mmcache.operator.names import CLUSTER, MANAGER
from mmcache.operator.resource import Wish

_MANAGED = "app.kubernetes.io/managed-by"


def is_ours(found: Mapping[str, Any], wish: Wish) -> bool:
    """It was made for this resource; or for one of its name that went without it, and nobody owns it now."""
    told = found["metadata"]
    owners = [one for one in told.get("ownerReferences") or () if one.get("controller")]
    if owners:
        return any(one.get("uid") == wish.uid for one in owners)
    labels = told.get("labels") or {}
    return labels.get(CLUSTER) == wish.name and labels.get(_MANAGED) == MANAGER


def look(api: Api, kind: Resource, wish: Wish, name: str) -> Object | None:
    """The object of this name, where it is ours. Raises `KubernetesError`."""
    found = api.get(kind, wish.namespace, name)
    return found if found is not None and is_ours(found, wish) else None


def apply(api: Api, kind: Resource, wish: Wish, wanted: Manifest) -> None:
    """It is as is wanted. Raises `KubernetesError`, with code 409 where the name is taken by somebody else."""
    told = wanted["metadata"]
    now = api.get(kind, wish.namespace, told["name"])
    if now is None:
        api.apply(kind, wanted, force=False)  # in conflict with whoever was faster
    elif is_ours(now, wish):
        # By its uid: it may be gone by now, and its name another's.
        api.apply(kind, {**wanted, "metadata": {**told, "uid": now["metadata"]["uid"]}})
    else:
        raise KubernetesError(
            f"{wanted['kind']} {told['name']} is there already and was not made for {wish.name}: it stays as it is; "
            "delete it, or give the MultimodalCache another name", code=409,
        )  # fmt: skip
