"""What a package manager does not do by itself: bring the definition up to date, and wait until a cluster is gone."""

from __future__ import annotations

import time
from collections.abc import Callable

from mmcache.model.errors import ScaleError
from mmcache.operator.api import CACHES, Api, Resource
from mmcache.operator.crd import definition
from mmcache.operator.names import FORCE_DELETE

DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
_LOOK_SECONDS = 1.0


def apply_definition(api: Api) -> str:
    """The definition that is there becomes ours; returns its name. Raises `KubernetesError`.

    By a merge patch: a server forgets the parts that it does not know, such as CEL, where a server-side apply, which
    checks types, would be refused by Kubernetes 1.20.
    """
    wanted = definition()
    name: str = wanted["metadata"]["name"]
    api.merge(DEFINITIONS, "", name, {"metadata": {"labels": wanted["metadata"]["labels"]}, "spec": wanted["spec"]})
    return name


def remove(
    api: Api, namespace: str, name: str, seconds: float, *,
    clock: Callable[[], float] = time.monotonic, wait: Callable[[float], None] = time.sleep,
) -> bool:  # fmt: skip
    """Delete a `MultimodalCache`, and return when it is gone; False where there was none.

    Raises `ScaleError` where it is still there after so many seconds, and says what it waits for; `KubernetesError`.
    """
    end = clock() + seconds
    found = api.get(CACHES, namespace, name)
    if found is None:
        return False
    uid = found["metadata"]["uid"]
    api.delete(CACHES, namespace, name, uid)
    while (found := api.get(CACHES, namespace, name)) is not None and found["metadata"]["uid"] == uid:
        if clock() >= end:
            status = found.get("status") or {}
            raise ScaleError(
                f"{namespace}/{name} is still there after {seconds:g} s ({status.get('phase', 'no phase')}: "
                f"{status.get('message', 'does an operator run?')}); to wait for nothing: "
                f"kubectl --namespace {namespace} annotate multimodalcache {name} {FORCE_DELETE}=true"
            )
        wait(_LOOK_SECONDS)
    return True
