"""What package managers call: waiting until a cluster is gone, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("lightkube")

from mmcache.model.errors import ScaleError
from mmcache.operator.api import CACHES, Resource
from mmcache.operator.crd import definition
from mmcache.operator.hooks import DEFINITIONS, apply_definition, remove


class Server:
    """Has one resource, which goes some seconds after it was deleted."""

    def __init__(self, goes_after: float | None, uid: str = "1", then: str | None = None) -> None:
        self.now, self.deleted, self._goes, self._uid, self._then = 0.0, float("inf"), goes_after, uid, then
        self.merged: list[tuple[Resource, str, str, dict[str, Any]]] = []

    def get(self, kind: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        assert (kind, namespace, name) == (CACHES, "inference", "shared")
        gone = self._goes is not None and self.now - self.deleted >= self._goes
        uid = self._then if gone else self._uid
        status = {"phase": "Draining", "message": "2-0 leaves"}
        return None if not uid else {"metadata": {"uid": uid}, "status": status}

    def delete(self, kind: Resource, namespace: str, name: str, uid: str = "") -> bool:
        assert (kind, uid) == (CACHES, "1")
        self.deleted = self.now
        return True

    def merge(self, kind: Resource, namespace: str, name: str, change: dict[str, Any]) -> None:
        self.merged.append((kind, namespace, name, change))

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def removed(server: Server, seconds: float = 60.0) -> bool:
    return remove(server, "inference", "shared", seconds, clock=server.clock, wait=server.wait)  # type: ignore[arg-type]


def test_it_waits_until_it_is_gone() -> None:
    server = Server(goes_after=12.5)
    assert removed(server)
    assert 12.5 <= server.now <= 14


def test_none_is_fine() -> None:
    server = Server(goes_after=None, uid="")
    assert not removed(server)
    assert server.now == 0


def test_another_of_its_name_is_not_waited_for() -> None:
    assert removed(Server(goes_after=3, then="2"))


def test_it_says_what_it_waits_for_and_how_to_wait_for_nothing() -> None:
    server = Server(goes_after=None)
    with pytest.raises(ScaleError, match=r"after 60 s \(Draining: 2-0 leaves\).*mmcache.dev/force-delete=true"):
        removed(server)
    assert server.now == 60


def test_the_definition_is_changed_by_a_merge() -> None:
    """A server that does not know a part of it forgets that part; an apply would be refused."""
    server = Server(goes_after=None)
    assert apply_definition(server) == "multimodalcaches.mmcache.dev"  # type: ignore[arg-type]
    ((kind, namespace, name, change),) = server.merged
    assert (kind, namespace, name) == (DEFINITIONS, "", "multimodalcaches.mmcache.dev")
    assert change["spec"] == definition()["spec"]
