"""Small parts: amounts, Secrets, where the server is, the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.fake_server import FakeServer
from tests.unit.operator.wishes import wish

from mmcache.cli.app import run
from mmcache.model.errors import KubernetesError, ScaleError, SettingsError
from mmcache.operator import crd, login, quantity, secrets, webhook
from mmcache.operator.api import SECRETS

CONFIG = {
    "current-context": "here",
    "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority": "ca.pem"}}],
    "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
    "users": [{"name": "u", "user": {"token": "hush"}}],
}


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        ("16Mi", 16 << 20), ("1.5Gi", 3 << 29), ("2G", 2_000_000_000), ("1e9", 10**9), ("1E9", 10**9), ("1E", 10**18),
        (1024, 1024), ("0", 0), ("1500m", 2), ("1k", 1000), ("1Ki", 1024),
    ],
)  # fmt: skip
def test_amounts(written: object, amount: int) -> None:
    assert quantity.parse(written) == amount


@pytest.mark.parametrize(
    "written", ["", "x", "-1", "1 Gi", "1gi", "1e", "1e999", "0x10", "1_000", "١", True, None, 1.5, [], "9" * 99]
)
def test_no_amounts(written: object) -> None:
    with pytest.raises(SettingsError, match="is no amount"):
        quantity.parse(written)


@given(st.integers(0, 1 << 50))
def test_amounts_come_back(amount: int) -> None:
    assert quantity.parse(quantity.write(amount)) == amount


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "there is no Secret s in inference"),
        ({}, "has no key password"),
        ({"password": ""}, "is empty"),
        ({"password": "/w=="}, "no text in UTF-8"),
        ({"password": "%%"}, "no text in UTF-8"),
    ],
    ids=["absent", "key", "empty", "bytes", "base64"],
)
def test_bad_secrets_are_named(data: dict[str, str] | None, said: str) -> None:
    server = FakeServer()
    if data is not None:
        server.put(SECRETS.path("inference", "s"), {"metadata": {}, "data": data})
    with pytest.raises(ScaleError, match=said):
        secrets.read(server.api(), wish(authSecretRef={"name": "s"}))


def test_no_authority_is_no_context() -> None:
    with pytest.raises(ScaleError, match=r"ca\.crt"):
        secrets.Secrets(authority="none").context()
    assert secrets.Secrets().context() is None
    assert "hush" not in repr(secrets.Secrets("hush", "hush", "hush"))


def test_both_clients_go_to_the_same_server(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps(CONFIG))
    config = login.found(path)
    told = login.connection(config)
    assert (told.server, told.token, told.ca_path) == ("https://10.0.0.1:6443", "hush", str(tmp_path / "ca.pem"))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"clusters": 3}'], ids=["empty", "cut", "list", "object", "number"]
)
def test_a_damaged_kubeconfig_is_said_to_be_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(KubernetesError, match="kubeconfig"):
        login.found(path)
    with pytest.raises(KubernetesError, match="not found"):
        login.found(tmp_path / "none")


def test_the_webhooks_configuration_fits_kubernetes_schemas() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    for made in (
        webhook.configuration(ca="pem", service=("home", "operator")),
        webhook.configuration(ca="pem", url="https://h"),
    ):
        validate.validate(made, "1.33", strict=True)
        assert made["webhooks"][0]["failurePolicy"] == "Ignore"


def test_the_commands_print_manifests(capsys: pytest.CaptureFixture[str]) -> None:
    yaml = pytest.importorskip("yaml")
    assert run(["operator", "crd"]) == 0
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == [crd.definition()]
    assert run(["operator", "crd", "--no-cel", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == crd.definition(cel=False)
    assert run(["operator", "rbac", "--home", "h", "--namespace", "a"]) == 0
    found = list(yaml.safe_load_all(capsys.readouterr().out))
    assert {thing["metadata"]["namespace"] for thing in found} == {"h", "a"}
    assert run(["operator", "rbac", "--secret", "one", "--secret", "two"]) == 0
    printed = capsys.readouterr().out
    (secrets_rule,) = [
        rule
        for thing in yaml.safe_load_all(printed)
        for rule in thing.get("rules", ())
        if rule["resources"] == ["secrets"]
    ]
    assert secrets_rule["resourceNames"] == ["one", "two"]
    assert run(["operator", "rbac", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "List"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["crd", "--format", "xml"], "yaml or json"),
        (["run", "--listen", "8080"], "--listen is HOST:PORT"),
        (["run", "--webhook", "0.0.0.0:9443"], "--webhook needs --webhook-cert"),
        (["run", "--kubeconfig", "/nonexistent/config"], "not found"),
    ],
    ids=["format", "listen", "webhook", "kubeconfig"],
)
def test_the_commands_say_what_is_wrong(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["operator", *words]) == 3
    assert said in capsys.readouterr().err


def test_the_definition_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mmcache.operator import run as room
    from mmcache.operator.api import Api

    server = FakeServer("mmcache.dev/v1alpha1")
    monkeypatch.setattr(Api, "connected", lambda config: server.api())
    path = tmp_path / "config"
    path.write_text(json.dumps(CONFIG))
    options: Any = room.Options("me", kubeconfig=path)
    with pytest.raises(ScaleError, match="mmcache operator crd"):
        room.serve(options)
