"""The operator on a real API server, beside things that are not its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.operator_stage import Deployed, Stage, kubernetes

from mmcache.lab.kubernetes.api import ApiError
from mmcache.operator.api import SERVICES, STATEFUL_SETS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with kubernetes(tmp_path_factory.mktemp("kubernetes")) as made:
        yield made


def test_another_names_service_is_neither_changed_nor_deleted(stage: Stage) -> None:
    namespace = stage.namespace()
    path = SERVICES.path(namespace, "shared")
    ports = [{"port": 8000, "targetPort": 8000, "protocol": "TCP"}]
    wanted = {"metadata": {"name": "shared"}, "spec": {"selector": {"app": "model"}, "ports": ports}}
    stage.api.create(SERVICES.path(namespace), wanted)
    made = Deployed(stage, namespace, "shared")
    made.create()
    try:
        stage.until(lambda: "Service shared is there already" in str(made.status.get("conditions")), "said so")
        found = stage.api.get(path)
        assert found["spec"]["selector"] == {"app": "model"}
        assert "ownerReferences" not in found["metadata"]
        assert not stage.api.items(STATEFUL_SETS.path(namespace))
        stage.api.delete(path)
        made.steady()
    finally:
        made.remove()


@pytest.mark.parametrize(
    "spec",
    [
        {"authSecretRef": {"name": "../../kube-system/secrets/token"}},
        {"authSecretRef": {"name": "s", "key": "$(id)"}},
        {"tls": {"secretName": "s?watch=1"}},
        {"config": {"maxclients": "9\nloadmodule /tmp/x"}},
    ],
    ids=["path", "script", "query", "directive"],
)  # fmt: skip
def test_the_server_refuses_what_would_lead_elsewhere(stage: Stage, spec: dict[str, object]) -> None:
    with pytest.raises(ApiError, match=r"spec\."):
        Deployed(stage, stage.namespace(), "shared").create(**spec)
