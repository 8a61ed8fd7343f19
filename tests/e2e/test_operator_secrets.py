"""The operator on a real API server: passwords that change, TLS, the webhook, namespaces that go, a second operator."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.operator_stage import NEW, OLD, Deployed, Stage, kubernetes

from mmcache.lab.kubernetes import operated
from mmcache.lab.kubernetes.api import ApiError
from mmcache.lab.servers.certificates import certificates
from mmcache.lab.servers.process import free_ports
from mmcache.model.errors import TierError
from mmcache.operator import webhook
from mmcache.scale.talk import ask

pytestmark = pytest.mark.slow
FIRST, SECOND = 'first "quoted" \\x41 7c1f', "second-☃-7c1f"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with kubernetes(tmp_path_factory.mktemp("kubernetes")) as made:
        yield made


def secret(stage: Stage, namespace: str, name: str, **texts: str) -> None:
    """Make it, or put another in its place."""
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
    at = f"/api/v1/namespaces/{namespace}/secrets"
    try:
        stage.api.create(at, made)
    except ApiError:
        old = stage.api.get(f"{at}/{name}")["data"]
        stage.api.patch(f"{at}/{name}", {"data": {**dict.fromkeys(old), **data}})


@contextmanager
def others(stage: Stage, folder: Path, *words: tuple[str, ...]) -> Iterator[list[operated.Operator]]:
    """Operators in place of the usual one, started one after the other; the last one is the stage's meanwhile."""
    usual: operated.Operator = stage.operator
    usual.stop()
    try:
        with ExitStack() as stack:
            made = []
            for number, told in enumerate(words):
                made.append(stack.enter_context(operated.operator(stage.plane, folder / str(number), *told)))
                stage.operator = made[-1]
                stage.until(lambda: "serving all namespaces" in made[-1].said(), "serving")
            yield made
    finally:
        stage.operator = usual
        usual.start()


def takes(cluster: Deployed, password: str | None) -> bool:
    """Every node lets in whoever says this."""
    try:
        return all(
            ask(6379, "PING", host=pod["status"]["podIP"], password=password) == "PONG"
            for pod in cluster.pods().values()
        )
    except (OSError, TierError, KeyError):  # KeyError: it has no address yet
        return False


def test_a_password_changes_without_a_restart(stage: Stage) -> None:
    made = Deployed(stage, stage.namespace(), "shared", password=FIRST)
    secret(stage, made.namespace, "valkey", password=FIRST + "\n")
    made.create(authSecretRef={"name": "valkey"})
    made.steady()
    assert not takes(made, None)
    pods = {name: pod["metadata"]["uid"] for name, pod in made.pods().items()}
    secret(stage, made.namespace, "valkey", password=SECOND, previous=FIRST)
    stage.until(lambda: takes(made, SECOND), "the new password taken")
    assert takes(made, FIRST)
    made.password = SECOND
    made.steady()
    secret(stage, made.namespace, "valkey", password=SECOND)
    stage.until(lambda: not takes(made, FIRST), "the old password taken no more")
    made.steady()
    assert {name: pod["metadata"]["uid"] for name, pod in made.pods().items()} == pods
    stage.nodes.kill(made.namespace, "shared-shard-0-0")  # comes back with what the Secret says now
    stage.until(lambda: made.pods()["shared-shard-0-0"]["status"]["containerStatuses"][0]["restartCount"], "restarted")
    stage.until(lambda: takes(made, SECOND), "the new password taken by the newcomer")
    made.steady()
    told = stage.operator.said() + str(made.resource()) + str(stage.api.items("/api/v1/events"))
    told += str([stage.api.items(f"/apis/apps/v1/namespaces/{made.namespace}/statefulsets"), made.pods(),
                 stage.api.items(f"/api/v1/namespaces/{made.namespace}/configmaps")])  # fmt: skip
    for name in made.pods():
        pid = stage.nodes.pid(made.namespace, name)
        told += stage.nodes.log(made.namespace, name) + Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        told += Path(f"/proc/{pid}/environ").read_text(errors="replace")
    assert FIRST not in told
    assert SECOND not in told
    made.remove()


def test_nodes_speak_tls_only(stage: Stage, tmp_path: Path) -> None:
    made = Deployed(stage, stage.namespace(), "safe", password=FIRST)
    papers = certificates(tmp_path)
    files = {"tls.crt": papers.certificate, "tls.key": papers.key, "ca.crt": papers.authority}
    secret(stage, made.namespace, "papers", **{name: path.read_text() for name, path in files.items()})
    secret(stage, made.namespace, "valkey", password=FIRST)
    made.create(image=OLD, authSecretRef={"name": "valkey"}, tls={"secretName": "papers"}, replicas=0)

    def serves() -> bool:
        status = made.status
        return (status.get("phase"), status.get("shards"), status.get("readyNodes")) == ("Steady", 3, 3)

    stage.until(serves, "three shards with TLS")
    assert made.status["address"].startswith("valkeys://safe.")
    assert not takes(made, FIRST)  # without TLS nobody is heard
    made.remove()


def test_an_image_that_is_not_there_costs_one_replica_and_can_be_taken_back(stage: Stage) -> None:
    made = Deployed(stage, stage.namespace(), "shared")
    made.create()
    made.steady()
    primaries = made.primaries()
    made.change(image="nobody/nothing:1")
    stage.until(lambda: "0-1: " in made.status.get("message", ""), "told what is wrong")
    assert made.status["phase"] != "Steady"
    assert made.primaries() == primaries
    waiting = [pod for pod in made.pods().values() if pod["spec"]["containers"][0]["image"] == "nobody/nothing:1"]
    assert len(waiting) == 1
    made.change(image=NEW)
    made.steady()
    made.change(podLabels={"no name": "x"})  # which no schema of ours refuses
    assert "no name" in made.phase("Blocked", "Refused")["message"]
    made.change(podLabels=None)
    made.steady()
    made.remove()


def test_a_namespace_goes_with_its_cluster(stage: Stage) -> None:
    made = Deployed(stage, stage.namespace(), "shared")
    made.create()
    made.steady()
    at = f"/api/v1/namespaces/{made.namespace}"
    stage.api.delete(at)

    def gone() -> bool:
        try:
            stage.api.get(at)
        except ApiError as error:
            return error.code == 404
        return False

    stage.until(gone, "the namespace gone")


def test_the_webhook_refuses_what_this_server_has_no_rules_for(stage: Stage, tmp_path: Path) -> None:
    papers = certificates(tmp_path)
    (port,) = free_ports(1)
    stage.operator.stop()
    words = (
        "--webhook",
        f"127.0.0.1:{port}",
        "--webhook-cert",
        str(papers.certificate),
        "--webhook-key",
        str(papers.key),
    )
    kind = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    with others(stage, tmp_path / "operator", words):
        stage.api.create(
            kind, webhook.configuration(ca=papers.authority.read_text(), url=f"https://127.0.0.1:{port}", fail=True)
        )
        try:
            good = Deployed(stage, stage.namespace(), "good")

            def made() -> bool:  # the API server has to hear of the webhook, and the webhook to listen
                try:
                    good.create(minShards=5, maxShards=3)
                except ApiError as error:
                    return "maxShards must be minShards..500 (5..500), not 3" in str(error)
                good.delete()
                return False

            stage.until(made, "refused")
            good.create(replicas=0)
            with pytest.raises(ApiError, match=r"burst\.endFactor must be from 1 to below"):
                good.change(burst={"endFactor": 7})
            with pytest.raises(ApiError, match="tls cannot be set, taken away or changed"):
                good.change(tls={"secretName": "late"})
            with pytest.raises(ApiError, match=r"config\.port cannot be set"):
                good.change(config={"port": "1"})
            good.steady(nodes=3)
            good.remove()
        finally:
            stage.api.delete(f"{kind}/mmcache-operator")


def test_a_second_operator_waits_for_the_lease(stage: Stage, tmp_path: Path) -> None:
    words = ("--lease", operated.HOME)
    with others(stage, tmp_path / "operators", words, words) as (one, two):
        stage.until(lambda: "holds the lease" in one.said(), "the first one's turn")
        made = Deployed(stage, stage.namespace(), "shared")
        made.create(replicas=0)
        made.steady(nodes=3)
        assert "StartShard" in one.said()
        assert "StartShard" not in two.said()
        assert one.stop() == 0
        made.change(minShards=4)
        made.steady(4, nodes=4)
        assert "holds the lease" in two.said()
        made.remove()
