"""Realms are known apart, within one bound, and none pushes another out."""

from __future__ import annotations

import pytest

from mmcache.model.key import Key
from mmcache.prefetch import realms as room
from mmcache.prefetch.graph import GraphSettings
from mmcache.prefetch.realms import Realms

SETTINGS = GraphSettings(most_nodes=200, most_edges=400, half_life=1e9)


def key(realm: int, number: int) -> Key:
    return Key(bytes([realm]) * 16, number.to_bytes(16, "big"))


def knowing(most_sessions: int = 50) -> Realms:
    return Realms(SETTINGS, 1e9, most_sessions, 2)


def counted(realms: Realms, names: list[object]) -> tuple[int, int, int]:
    known = [one for one in map(realms.find, names) if one is not None]
    return sum(len(one.graph) for one in known), sum(one.graph.edges for one in known), sum(
        len(one.sessions) for one in known
    )  # fmt: skip


def test_equal_names_in_two_realms_are_two_sessions() -> None:
    realms = knowing()
    for number in range(4):
        for realm in (0, 1):
            assert realms.visit(realm, "visitor", key(realm, number), float(number))
    for realm in (0, 1):
        known = realms.find(realm)
        assert known is not None
        assert known.sessions.recent("visitor", 3.0) == (key(realm, 3), key(realm, 2))
        assert {node.scope for node in known.graph} == {bytes([realm]) * 16}


def test_a_tenant_that_goes_through_keys_and_sessions_pushes_out_its_own() -> None:
    realms = knowing()
    for number in range(20):
        realms.visit("quiet", f"visitor {number % 4}", key(0, number % 10), float(number))
    quiet = realms.find("quiet")
    assert quiet is not None
    before = (set(quiet.graph), quiet.graph.edges, len(quiet.sessions))
    for number in range(20_000):
        realms.visit("loud", number // 3, key(1, number), 20.0 + number)
        assert realms.nodes <= SETTINGS.most_nodes
        assert realms.edges <= SETTINGS.most_edges
        assert realms.sessions <= 50
    assert (set(quiet.graph), quiet.graph.edges, len(quiet.sessions)) == before
    assert (realms.nodes, realms.edges, realms.sessions) == counted(realms, ["quiet", "loud"])


def test_all_of_them_get_as_much_where_all_want_more() -> None:
    realms = knowing()
    for number in range(5000):
        realms.visit(number % 4, number // 8, key(number % 4, number), float(number))
    held = [one for one in map(realms.find, range(4)) if one is not None]
    assert all(len(one.graph) >= SETTINGS.most_nodes / 4 - 2 for one in held)


def test_there_are_so_many_realms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST", 8)
    realms = knowing()
    for number in range(1000):
        realms.visit(number, "a", key(0, 1), float(number))
    assert len(realms) == 8
    assert (realms.nodes, realms.edges, realms.sessions) == counted(realms, list(range(1000)))


def test_one_realm_may_have_one_node_whose_edges_are_too_many() -> None:
    realms = Realms(GraphSettings(most_nodes=1, most_edges=1), 1e9, 1, 4)
    for number in range(100):
        realms.visit(number % 3, "a", key(0, number), float(number))
        assert realms.nodes <= 1
        assert realms.edges <= 1
        assert realms.sessions <= 1
