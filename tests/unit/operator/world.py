"""An API server in memory with one resource, time, and a controller that does what the test says."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from tests.unit.operator.fake_server import FakeServer
from tests.unit.operator.test_status import made
from tests.unit.operator.wishes import resource

from mmcache.operator.api import CACHES, EVENTS, SECRETS
from mmcache.operator.cluster import Cluster
from mmcache.scale.access import Access
from mmcache.scale.controller import never
from mmcache.scale.observed import Observed
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Status

NS = "inference"
AT = CACHES.path(NS, "shared")


class Steered:
    """Stands for `Controller`."""

    made: list[Steered]

    def __init__(self, platform: Any, access: Access, saved: Any = None) -> None:
        self.platform, self.access, self.was = platform, access, saved
        self.next: Status = made()
        self.specs: list[ClusterSpec] = []
        self.drains = 0
        self.seen: Observed | None = None
        Steered.made.append(self)

    def turn(self, spec: ClusterSpec, at: float, cancelled: Callable[[], bool] = never) -> Status:
        self.specs.append(spec)
        return self.next

    def drain(self, at: float, cancelled: Callable[[], bool] = never) -> Status:
        self.drains += 1
        return self.next

    def saved(self) -> dict[str, Any]:
        return {"turns": len(self.specs)}


class World:
    """A server with one resource, and time."""

    def __init__(self, spec: dict[str, Any] | None = None, **metadata: Any) -> None:
        self.server, self.now = FakeServer(), 1_800_000_000.0
        self.server.put(AT, resource(spec, **metadata))
        self.cluster = self.again()

    def again(self) -> Cluster:
        """As after a restart of the operator."""
        self.cluster = Cluster(self.server.api(), NS, "shared", lambda: self.now)
        return self.cluster

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.server.objects[AT].get("status", {})
        return found

    def secret(self, name: str = "secret", **texts: str) -> None:
        data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        self.server.put(SECRETS.path(NS, name), {"metadata": {"name": name}, "data": data})

    def events(self) -> list[dict[str, Any]]:
        return [one for path, one in self.server.objects.items() if f"/{EVENTS.plural}/" in path]
