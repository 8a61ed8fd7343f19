"""An API server in memory, behind httpx2's own transport; and what its StatefulSet controller would do."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import httpx2

from mmcache.operator.api import PODS, STATEFUL_SETS, Api

Object = dict[str, Any]
_PATH = re.compile(
    r"(?P<root>/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/(?P<ns>[^/]+))?/(?P<plural>[a-z]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<sub>status))?"
)


class FakeServer:
    """Objects by path. `missing`: API versions that it does not have. `broken`: answers to all, in order."""

    def __init__(self, *missing: str) -> None:
        self.objects: dict[str, Object] = {}
        self.missing, self.broken = missing, list[httpx2.Response]()
        self.troubled: str | None = None
        self.trouble = (500, "etcd does not answer")
        """What has `troubled` in its path is answered so."""
        self.calls: list[tuple[str, str]] = []
        self.sent: list[Object] = []
        self._numbers = itertools.count(1)

    def api(self) -> Api:
        """A client of it."""
        return Api(httpx2.Client(base_url="https://kubernetes", transport=httpx2.MockTransport(self.answer)))

    def put(self, path: str, thing: Object) -> Object:
        """As if somebody had created it."""
        thing["metadata"].setdefault("uid", f"uid-{next(self._numbers)}")
        thing["metadata"]["resourceVersion"] = str(next(self._numbers))
        self.objects[path] = thing
        return thing

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """Of the server."""
        path, method = request.url.path, request.method
        self.calls.append((method, path))
        if self.broken:
            return self.broken.pop(0)
        if self.troubled is not None and self.troubled in path:
            return refusal(*self.trouble)
        found = _PATH.fullmatch(path)
        assert found is not None, path
        if any(path.startswith(f"/apis/{version}") for version in self.missing):
            return httpx2.Response(404, text="404 page not found\n")
        body = json.loads(request.content) if request.content else {}
        if body:
            self.sent.append(body)
        if method == "GET" and found["name"] is None:
            return self._list(path, dict(request.url.params))
        if method == "POST":
            return self._post(f"{path}/{body['metadata']['name']}", body)
        return self._one(method, path.removesuffix("/status"), body, request.headers.get("content-type", ""))

    def _list(self, path: str, params: dict[str, str]) -> httpx2.Response:
        wanted = dict(pair.split("=") for pair in params.get("labelSelector", "").split(",") if pair)
        items = [
            one for key, one in sorted(self.objects.items())
            if key.rpartition("/")[0] == path and wanted.items() <= (one["metadata"].get("labels") or {}).items()
        ]  # fmt: skip
        start, limit = int(params.get("continue") or 0), int(params["limit"])
        onward = str(start + limit) if len(items) > start + limit else ""
        return httpx2.Response(200, json={"items": items[start : start + limit], "metadata": {"continue": onward}})

    def _post(self, path: str, body: Object) -> httpx2.Response:
        if path in self.objects:
            return refusal(409, "already exists")
        return httpx2.Response(201, json=self.put(path, body))

    def _one(self, method: str, path: str, body: Object, kind: str) -> httpx2.Response:
        now = self.objects.get(path)
        if now is None and kind != "application/apply-patch+yaml":
            return refusal(404, f"{path} not found")
        if method == "DELETE":
            assert now is not None
            if body.get("preconditions", {}).get("uid", now["metadata"]["uid"]) != now["metadata"]["uid"]:
                return refusal(409, "the UID in the precondition does not match")
            del self.objects[path]
            return httpx2.Response(200, json={})
        if method == "PUT":
            assert now is not None
            if body["metadata"].get("resourceVersion") != now["metadata"]["resourceVersion"]:
                return refusal(409, "the object has been modified")
            return httpx2.Response(200, json=self.put(path, body))
        if method == "PATCH":
            return httpx2.Response(200, json=self.put(path, merged(now or {}, body)))
        return httpx2.Response(200, json=now)

    def make_pods(self, ready: bool = True) -> None:
        """What the StatefulSet controller, a scheduler and a kubelet would have done after a while."""
        owned = set()
        for path, found in list(self.objects.items()):
            if f"/{STATEFUL_SETS.plural}/" not in path:
                continue
            namespace, name = found["metadata"]["namespace"], found["metadata"]["name"]
            for place in range(found["spec"]["replicas"]):
                at = PODS.path(namespace, f"{name}-{place}")
                owned.add(at)
                if at not in self.objects:
                    self.put(at, self._pod(found, name, namespace, place, ready))
        for path in [path for path in self.objects if f"/{PODS.plural}/" in path and path not in owned]:
            del self.objects[path]

    def _pod(self, of: Object, name: str, namespace: str, place: int, ready: bool) -> Object:
        number = next(self._numbers)
        template = of["spec"]["template"]
        return {
            "metadata": {
                "name": f"{name}-{place}", "namespace": namespace, "labels": dict(template["metadata"]["labels"]),
                "ownerReferences": [{"kind": "StatefulSet", "name": name}],
            },
            "spec": {**template["spec"], "nodeName": f"machine-{place}"},
            "status": {
                "phase": "Running", "podIP": f"10.0.0.{number}",
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            },
        }  # fmt: skip


def refusal(code: int, message: str) -> httpx2.Response:
    """As the API server puts it."""
    return httpx2.Response(code, json={"kind": "Status", "status": "Failure", "message": message, "code": code})


def merged(now: Object, change: Object) -> Object:
    """RFC 7386."""
    made = dict(now)
    for key, value in change.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict):
            made[key] = merged(now.get(key) or {}, value)
        else:
            made[key] = value
    return made
