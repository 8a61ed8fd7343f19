"""Events of a resource, as `kubectl describe` shows them; the same again is counted, not written again."""

from __future__ import annotations

import hashlib

from mmcache.model.errors import KubernetesError
from mmcache.operator.api import EVENTS, Api, Object
from mmcache.operator.names import API_VERSION, KIND, MANAGER
from mmcache.operator.resource import Wish
from mmcache.scale.status import Happened

_LONGEST = 1024


def post(api: Api, wish: Wish, happened: Happened, now: str) -> None:
    """now: RFC 3339. An event that cannot be written is no reason to stop: only `KubernetesError` is raised."""
    made = event(wish, happened, now)
    try:
        api.create(EVENTS, made)
    except KubernetesError as error:
        if error.code != 409:
            raise
        before = api.get(EVENTS, wish.namespace, made["metadata"]["name"])
        if before is not None:
            count = int(before.get("count") or 1) + 1
            api.merge(EVENTS, wish.namespace, made["metadata"]["name"], {"count": count, "lastTimestamp": now})


def event(wish: Wish, happened: Happened, now: str) -> Object:
    """Its name is made from what it says: so it is found again, after a restart too."""
    said = f"{wish.uid}\n{happened.reason}\n{happened.message}".encode()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{wish.name}.{hashlib.sha256(said).hexdigest()[:16]}",
            "namespace": wish.namespace,
        },
        "involvedObject": {
            "apiVersion": API_VERSION, "kind": KIND, "name": wish.name, "namespace": wish.namespace, "uid": wish.uid,
        },
        "type": "Warning" if happened.warning else "Normal",
        "reason": happened.reason,
        "message": happened.message[:_LONGEST],
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }  # fmt: skip
