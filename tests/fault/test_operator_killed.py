"""The operator is killed at every kind of step of a cluster's life, before it and after it; the life goes on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.operator_stage import NEW, OLD, Stage, kubernetes

pytestmark = pytest.mark.slow
CUT = Path(__file__).with_name("operator_cut.py")
KINDS = {
    "PATCH statefulsets", "PATCH services", "PATCH configmaps", "PATCH poddisruptionbudgets", "POST events",
    "PATCH multimodalcaches status", "DELETE statefulsets", "DELETE pods", "kopf: PATCH multimodalcaches",
    "CLUSTER MEET", "CLUSTER REPLICATE", "CLUSTER ADDSLOTS", "CLUSTER FAILOVER", "CLUSTER FORGET",
    "CLUSTER SETSLOT IMPORTING", "CLUSTER SETSLOT MIGRATING", "CLUSTER SETSLOT NODE", "MIGRATE",
    "CLUSTER MIGRATESLOTS",
}  # fmt: skip


class Reviving(Stage):
    """Starts the operator again whenever it is found dead, as Kubernetes would."""

    def look_after(self) -> bool:
        """See the class. How often it dies is not known before; each time it is given as long as ever."""
        if self.operator.alive:
            return False
        assert self.operator.process.returncode == -signal.SIGKILL, self.state()
        self.operator.start()
        return True

    def state(self) -> str:
        """With how often it died."""
        return f"{super().state()}\n{self.cuts()}"

    def cuts(self) -> list[str]:
        """Where it was killed."""
        file = self.folder / "cuts"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with kubernetes(tmp_path, program=(sys.executable, str(CUT), str(tmp_path / "cuts")), kind=Reviving) as made:
        yield made


def test_it_is_killed_at_each_step_of_a_clusters_life(stage: Reviving) -> None:
    with stage.cluster(image=OLD) as cluster:
        with cluster.use() as users:
            cluster.change(minShards=4)
            cluster.steady(4)
            cluster.change(image=NEW)
            cluster.steady(4)
            cluster.change(minShards=3, maxShards=3)
            cluster.steady(3)
            kept, stored = users.kept()
            assert kept == stored
            assert users.misses == 0
        victim = sorted(cluster.primaries())[0]
        pid = stage.nodes.pid(cluster.namespace, victim)
        stage.nodes.kill(cluster.namespace, victim)
        stage.until(lambda: stage.nodes.pid(cluster.namespace, victim) not in (None, pid), "started again")
        cluster.steady(3)
        users.kept()
    cuts = stage.cuts()
    missed = {f"{kind}, {when}" for kind in KINDS for when in ("before", "after")} - set(cuts)
    assert not missed
    assert len(cuts) == len(set(cuts))
