"""What befalls a cluster on Kubernetes, and that it is whole again without a wrong answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.operator_stage import NEW, OLD, Deployed, Stage, Users, kubernetes

from mmcache.lab.servers import slot_of, talk

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with kubernetes(tmp_path_factory.mktemp("kubernetes")) as made:
        yield made


@pytest.fixture(scope="module")
def shared(stage: Stage) -> Iterator[Deployed]:
    with stage.cluster(image=OLD) as made:
        yield made


@pytest.fixture
def users(shared: Deployed) -> Iterator[Users]:
    shared.steady()
    with shared.use() as made:
        yield made
        shared.steady()
        before = made.hits
        shared.stage.until(lambda: made.hits > before + 5, "used again")


def uids(shared: Deployed) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in shared.pods().items()}


def machines(shared: Deployed) -> set[str]:
    """That it is on."""
    return {pod["spec"].get("nodeName", "") for pod in shared.pods().values()}


def apart(shared: Deployed) -> bool:
    """No two of a shard are on one machine."""
    places = [(name.rpartition("-")[0], pod["spec"]["nodeName"]) for name, pod in shared.pods().items()]
    return len(set(places)) == len(places)


def test_a_container_that_is_killed(stage: Stage, shared: Deployed, users: Users) -> None:
    victim = sorted(shared.primaries())[0]
    heir = victim[:-1] + ("1" if victim.endswith("0") else "0")
    before, pid = uids(shared), stage.nodes.pid(shared.namespace, victim)
    stage.nodes.kill(shared.namespace, victim)
    stage.until(lambda: heir in shared.primaries(), "taken over")
    stage.until(lambda: stage.nodes.pid(shared.namespace, victim) not in (None, pid), "started again")
    shared.steady()
    assert uids(shared) == before
    assert shared.role(victim) == "slave"


def test_a_pod_that_is_deleted(stage: Stage, shared: Deployed, users: Users) -> None:
    victim = sorted(shared.primaries())[-1]
    before = uids(shared)[victim]
    stage.api.delete(f"/api/v1/namespaces/{shared.namespace}/pods/{victim}")
    stage.until(lambda: uids(shared).get(victim, before) != before, "made anew")
    shared.steady()
    assert victim not in shared.primaries()
    kept, stored = users.kept()
    assert stored - kept <= 2, "a primary that is asked to leave hands over first"


def test_a_machine_that_is_drained(stage: Stage, shared: Deployed, users: Users) -> None:
    machine = stage.nodes.machines.of(shared.namespace, sorted(shared.primaries())[0])
    stage.nodes.machines.drain(machine, 180.0)
    shared.steady()
    assert machine not in machines(shared)
    assert apart(shared)
    stage.nodes.machines.cordon(machine, closed=False)
    kept, stored = users.kept()
    assert stored - kept <= 2


def test_machines_that_are_drained_one_after_another(stage: Stage, shared: Deployed, users: Users) -> None:
    """Nobody waits in between but for the budget: a pod that is new and empty must not count."""
    for machine in stage.nodes.machines.names:
        stage.nodes.machines.drain(machine, 240.0)
        stage.nodes.machines.cordon(machine, closed=False)
    shared.steady()
    assert apart(shared)
    kept, stored = users.kept()
    assert stored - kept <= 8


def test_a_machine_whose_power_is_cut_and_that_is_given_up(stage: Stage, shared: Deployed, users: Users) -> None:
    machine = stage.nodes.machines.of(shared.namespace, sorted(shared.primaries())[0])
    stage.nodes.lose(machine)
    stage.until(
        lambda: machine not in {pod["spec"].get("nodeName") for pod in shared.pods().values()}, "made elsewhere"
    )
    shared.steady()
    assert apart(shared)
    stage.nodes.join(machine)


def test_a_machine_that_comes_back(stage: Stage, shared: Deployed, users: Users) -> None:
    machine = stage.nodes.machines.of(shared.namespace, sorted(shared.primaries())[0])
    stage.nodes.fail(machine)
    stage.until(lambda: shared.status["readyNodes"] < 6, "missed")
    stage.nodes.recover(machine)
    shared.steady()


def test_no_machine_is_left_for_a_replica(stage: Stage, shared: Deployed) -> None:
    """Then it waits, rather than stand beside its primary."""
    shared.steady()
    closed = stage.nodes.machines.names[1:]
    for machine in closed:
        stage.nodes.machines.cordon(machine)
    victim = next(
        name for name, pod in shared.pods().items()
        if name not in shared.primaries() and pod["spec"]["nodeName"] in closed
    )  # fmt: skip
    stage.api.delete(f"/api/v1/namespaces/{shared.namespace}/pods/{victim}")
    other = shared.pods()[victim[:-1] + ("1" if victim.endswith("0") else "0")]["spec"]["nodeName"]
    if other == stage.nodes.machines.names[0]:
        status = shared.phase("Repairing", "WaitingForMember")
        assert "is there a machine for it?" in status["message"]
    for machine in closed:
        stage.nodes.machines.cordon(machine, closed=False)
    shared.steady()
    assert apart(shared)


def test_a_new_image_goes_round_by_failover(shared: Deployed, users: Users) -> None:
    assert any("7.0" in line for line in shared.versions())
    before = uids(shared)
    shared.change(image=NEW)
    shared.steady()
    assert all(uid != before[name] for name, uid in uids(shared).items())
    assert any("valkey_version:9" in line for line in shared.versions())
    kept, stored = users.kept()
    assert kept == stored
    assert (users.misses, users.refused) == (0, 0)


def test_it_does_not_shrink_where_the_blocks_would_not_fit(shared: Deployed) -> None:
    shared.change(minShards=4, maxShards=4, image=NEW)
    shared.steady(4)
    fill(shared, 1500, 100_000)
    shared.change(minShards=3, maxShards=3)
    status = shared.phase("Blocked")
    assert "allow eviction" in status["message"]
    assert len(shared.primaries()) == 4
    shared.change(scaleIn={"allowEviction": True})
    shared.steady(3)


def fill(shared: Deployed, count: int, size: int) -> None:
    """So many keys, wherever they belong."""
    slots = shared.ask(next(iter(shared.primaries())), "CLUSTER", "SLOTS")
    for low, high, (host, port, *_), *_ in slots:
        keys = [key for key in map(b"filling %d".__mod__, range(count)) if low <= slot_of(key) <= high]
        for some in range(0, len(keys), 50):
            told = talk(port, *(("SET", key, bytes(size)) for key in keys[some : some + 50]), host=host.decode())
            assert set(told) == {"OK"}
