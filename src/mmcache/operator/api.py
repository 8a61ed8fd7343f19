"""Plain words to the API server, in objects as it has them: any version of it, whatever its models are.

lightkube finds the server, trusts it and says who we are (service account, kubeconfig, renewed tokens).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError

from mmcache.model.errors import KubernetesError
from mmcache.operator.names import GROUP, MANAGER, PLURAL, VERSION

Object = dict[str, Any]
PAGE = 500
_WAIT_SECONDS = 10.0
_UNTYPED = ("failed to create typed patch object", "failed to convert new object")
"""What a server says with code 500 of an apply that has a word where a number belongs: it is our fault, not its own."""

_NAMED = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True)
class Resource:
    """A kind of objects, as the API server has it in its paths."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Of one, or of all in a namespace, or of all. Raises `KubernetesError`: `..` would lead elsewhere."""
        for part in (namespace, name):
            if part and not _NAMED.fullmatch(part):
                raise KubernetesError(f"{part!r:.80} is no name of an object in Kubernetes", code=422)
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = f"/namespaces/{namespace}" if namespace else ""
        return "/".join(part for part in (root + within, self.plural, name, subresource) if part)


CACHES = Resource(GROUP, VERSION, PLURAL)
PODS = Resource("", "v1", "pods")
SERVICES = Resource("", "v1", "services")
CONFIG_MAPS = Resource("", "v1", "configmaps")
SECRETS = Resource("", "v1", "secrets")
EVENTS = Resource("", "v1", "events")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")
BUDGETS_BEFORE_1_21 = Resource("policy", "v1beta1", "poddisruptionbudgets")


class Api:
    """Thread-safe. Every method raises `KubernetesError`, with what was asked and what the server said."""

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client

    @classmethod
    def connected(cls, config: SingleConfig, wait_seconds: float = _WAIT_SECONDS) -> Api:
        """To the server of a kubeconfig."""
        return cls(client_adapter.Client(config, client_adapter.ConnectionParams(timeout=httpx2.Timeout(wait_seconds))))

    def close(self) -> None:
        """End its connections."""
        self._client.close()

    def get(self, kind: Resource, namespace: str, name: str) -> Object | None:
        """None where there is none."""
        try:
            return self._asked("GET", kind.path(namespace, name))
        except KubernetesError as error:
            if error.code == 404:
                return None
            raise

    def list(self, kind: Resource, namespace: str = "", labels: Mapping[str, str] | None = None) -> list[Object]:
        """Those that have these labels, page by page."""
        found: list[Object] = []
        params = {"limit": str(PAGE)}
        if labels:
            params["labelSelector"] = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        while True:
            page = self._asked("GET", kind.path(namespace), params=params)
            found += page.get("items") or []
            onward = (page.get("metadata") or {}).get("continue")
            if not onward:
                return found
            params["continue"] = onward

    def apply(self, kind: Resource, wanted: Object, force: bool = True) -> Object:
        """Server-side apply: what it names becomes ours, and so; the rest stays as it is.

        force: also what is somebody else's; else it is refused with code 409.
        """
        told = wanted["metadata"]
        return self._asked(
            "PATCH", kind.path(told["namespace"], told["name"]), wanted, "application/apply-patch+yaml",
            {"fieldManager": MANAGER, "force": "true" if force else "false"},
        )  # fmt: skip

    def merge(self, kind: Resource, namespace: str, name: str, change: Object, subresource: str = "") -> Object:
        """Only what it names changes; None takes a field away."""
        return self._asked(
            "PATCH", kind.path(namespace, name, subresource), change, "application/merge-patch+json",
            {"fieldManager": MANAGER},
        )  # fmt: skip

    def condition(self, kind: Resource, namespace: str, name: str, change: Object) -> Object:
        """Conditions of its status: those of other types stay, whoever writes them."""
        return self._asked(
            "PATCH", kind.path(namespace, name, "status"), change, "application/strategic-merge-patch+json",
            {"fieldManager": MANAGER},
        )  # fmt: skip

    def create(self, kind: Resource, wanted: Object) -> Object:
        """Code 409 where there is one of the name."""
        return self._asked("POST", kind.path(wanted["metadata"]["namespace"]), wanted, params={"fieldManager": MANAGER})

    def replace(self, kind: Resource, wanted: Object) -> Object:
        """Code 409 where somebody changed it since it was read."""
        told = wanted["metadata"]
        return self._asked(
            "PUT", kind.path(told["namespace"], told["name"]), wanted, params={"fieldManager": MANAGER}
        )  # fmt: skip

    def delete(self, kind: Resource, namespace: str, name: str, uid: str = "") -> bool:
        """Only the one of this `uid`, where it is given; what it owns goes afterwards. False where it is gone."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            self._asked("DELETE", kind.path(namespace, name), options)
        except KubernetesError as error:
            if error.code == 404 or (uid and error.code == 409):  # another has its name by now
                return False
            raise
        return True

    def _asked(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Object:  # fmt: skip
        headers = {"Accept": "application/json"} | ({"Content-Type": kind} if body is not None else {})
        content = None if body is None else json.dumps(body).encode()
        try:
            answer = self._client.request(method, path, content=content, headers=headers, params=dict(params or {}))
        except (httpx2.HTTPError, httpx2.InvalidURL, ConfigError, OSError) as error:
            raise KubernetesError(f"the API server was not reached for {method} {path}: {error!r:.300}") from error
        if answer.is_error:
            said = _said(answer)
            untyped = answer.status_code == 500 and any(words in said for words in _UNTYPED)
            raise KubernetesError(f"{method} {path}: {said}", code=422 if untyped else answer.status_code)
        try:
            found = answer.json()
        except ValueError as error:
            raise KubernetesError(f"{method} {path}: the answer is no JSON", code=answer.status_code) from error
        return found if isinstance(found, dict) else {}


def _said(answer: httpx2.Response) -> str:
    """Its reason. Never the body that was sent: a server may quote it, but not a Secret, which is only read here."""
    try:
        told = answer.json()
        return f"{answer.status_code}, {told['message']:.600}"
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code}, {answer.text:.200}"
