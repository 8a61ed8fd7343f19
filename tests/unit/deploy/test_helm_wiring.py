"""What the chart tells the programs, asked of the programs themselves; and that no secret is told but by reference."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.unit.deploy.chart import (
    SECRET_VALUES,
    VERSIONS,
    WISHES,
    Rendered,
    container,
    environment,
    needs_helm,
    pod_of,
    pods,
    rendered,
    secrets,
)  # fmt: skip
from tests.unit.deploy.kit import yaml

pytest.importorskip("uvicorn")

from mmcache.cli.app import build
from mmcache.operator.metrics import Watch
from mmcache.server.config import ServerSettings
from mmcache.server.operations import Operations
from mmcache.server.settings_file import Configured, read

pytestmark = needs_helm


@pytest.fixture(params=[(wish, version) for wish in WISHES for version in VERSIONS[::2]], ids="-".join, name="found")
def of_each(request: pytest.FixtureRequest) -> Rendered:
    return rendered(*request.param)


def configured(found: Rendered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configured:
    """The proxy's configuration, read as the proxy reads it."""
    told = environment(found, found.one("Deployment", "proxy"))
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "mmcache.toml"
    file.write_text(found.one("ConfigMap", "proxy")["data"]["mmcache.toml"], "utf-8")
    words = container(found.one("Deployment", "proxy"))["args"]
    upstream = "--upstream=$(MMCACHE_UPSTREAM)" in words
    return read(file, upstream=told["MMCACHE_UPSTREAM"] if upstream else None)


@pytest.mark.parametrize("wish", [wish for wish in WISHES if wish != "operator-alone"])
def test_the_proxy_understands_its_configuration(wish: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rendered(wish)
    got = configured(found, tmp_path, monkeypatch)
    server: ServerSettings = got.server
    assert (server.host, server.port) == ("0.0.0.0", 8090)
    assert server.admin_token is not None
    assert len(got.cache["secret"]) == 32
    if wish == "everything":
        assert server.upstream == "http://model:8000"
        assert (server.rate, server.drain_seconds, server.at_once) == (12.5, 60, 100)
        assert server.trust.anonymous == "everybody"
        assert server.trust.authority is None
        assert server.trust.front_token == "0123456789abcdef"
        assert server.trust.harmless_headers == ("x-mesh", "x-trace")
        assert server.routes["/v1/embeddings"].identity == "bytes"
        assert server.routes["/v1/embeddings"].ttl_seconds == 3600
        assert got.cache["tenants"]["gold"].quota_bytes == 2 << 30
        assert got.cache["shared"] == "valkey://shared.vision.svc:6379?cluster=true"
    else:
        assert server.upstream == "http://vllm:8000"
    if wish == "proxy-alone":
        assert server.telemetry.otlp is None
        assert "shared" not in got.cache
    else:
        assert server.telemetry.otlp == "http://mmcache-dashboard.vision.svc:4318"
        assert server.telemetry.token == environment(found, found.one("Deployment", "proxy"))["MMCACHE_INGEST_TOKEN"]


def test_the_cluster_is_found_where_the_operator_puts_it() -> None:
    from mmcache.operator.manifests import address
    from mmcache.operator.resource import understood

    for wish in ("default", "everything"):
        found = rendered(wish)
        (resource,) = found.of("MultimodalCache")
        resource["metadata"]["namespace"] = "vision"
        assert f'shared = "{address(understood(resource))}"' in found.one("ConfigMap", "proxy")["data"]["mmcache.toml"]


def test_every_program_understands_its_words(found: Rendered) -> None:
    for name, pod in pods(found):
        (each,) = pod["spec"]["containers"]
        if "command" in each:
            continue
        words = [re.sub(r"\$\([A-Z_]+\)", "http://model:8000", word) for word in each["args"]]
        parsed = build().parse_args(words, exit_on_error=False, print_error=False)
        assert callable(parsed[0]), name


def operators_answer(path: str) -> int:
    watch = object.__new__(Watch)
    watch.beat()
    watch.ready = True
    return watch.answer(path, None)[0]  # type: ignore[arg-type]  # no cluster is needed to say that one is well


def test_every_probe_asks_what_there_is(found: Rendered) -> None:
    for thing in found.of("Deployment"):
        component = thing["metadata"]["labels"]["app.kubernetes.io/component"]
        each = container(thing)
        ports = {port["name"] for port in each["ports"]}
        paths = {each[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "liveness", "readiness")}
        assert {each[f"{probe}Probe"]["httpGet"]["port"] for probe in ("startup", "liveness", "readiness")} <= ports
        assert paths == ({"/healthz"} if component == "dashboard" else {"/healthz", "/readyz"})
        if component == "proxy":
            assert all(Operations.own(object.__new__(Operations), path.encode()) for path in paths)
        if component == "operator":
            assert all(operators_answer(path) == 200 for path in paths)
        assert each["livenessProbe"]["httpGet"]["path"] == "/healthz", "what stands behind it must not kill it"


def test_services_and_monitors_lead_to_ports_of_pods(found: Rendered) -> None:
    for service in found.of("Service"):
        wanted = service["spec"]["selector"].items()
        (pod,) = [pod for _, pod in pods(found) if wanted <= pod["metadata"]["labels"].items()]
        named = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
    for monitor in found.of("ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        (service,) = [one for one in found.of("Service") if wanted <= one["metadata"]["labels"].items()]
        (end,) = monitor["spec"]["endpoints"]
        assert end["port"] in {port["name"] for port in service["spec"]["ports"]}
        assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]].startswith("mmcache"), "the rules go by it"


def test_a_budget_or_a_scaler_means_pods_that_are_there(found: Rendered) -> None:
    for budget in found.of("PodDisruptionBudget"):
        wanted = budget["spec"]["selector"]["matchLabels"].items()
        assert [pod for _, pod in pods(found) if wanted <= pod["metadata"]["labels"].items()]
    for scaler in found.of("HorizontalPodAutoscaler"):
        scaled = scaler["spec"]["scaleTargetRef"]["name"]
        (deployment,) = [one for one in found.of("Deployment") if one["metadata"]["name"] == scaled]
        assert "replicas" not in deployment["spec"], "an upgrade would undo what the scaler did"
        assert "cpu" in container(deployment)["resources"]["requests"]


def test_a_budget_never_keeps_the_only_pod() -> None:
    """Nobody could drain its machine."""
    assert not rendered("own-secrets").of("PodDisruptionBudget")
    assert rendered().of("PodDisruptionBudget")


def test_secrets_are_told_by_reference_only(found: Rendered) -> None:
    values = [value for data in secrets(found).values() for key, value in data.items() if key != "ca.crt"]
    for thing in found.objects:
        if thing["kind"] != "Secret":
            text = json.dumps(thing)
            assert not [value for value in values if value in text], thing["metadata"]["name"]
    for name, pod in pods(found):
        for entry in pod["spec"]["containers"][0].get("env", ()):
            if re.search("TOKEN|PASSWORD|SECRET", entry["name"]):
                assert entry["valueFrom"]["secretKeyRef"], name


def test_every_secret_that_is_named_is_made_or_is_the_users(found: Rendered) -> None:
    made = {name: set(data) for name, data in secrets(found).items()}
    for thing in found.objects:
        pod = pod_of(thing)
        named: list[tuple[str, str | None]] = []
        if pod is not None:
            for each in pod["spec"]["containers"]:
                wanted = [entry["valueFrom"]["secretKeyRef"] for entry in each.get("env", ()) if "valueFrom" in entry]
                named += [(one["name"], one["key"]) for one in wanted]
            named += [(one["secret"]["secretName"], None) for one in pod["spec"].get("volumes", ()) if "secret" in one]
            named += [(one["name"], None) for one in pod["spec"].get("imagePullSecrets", ())]
        elif thing["kind"] == "MultimodalCache":
            named.append((thing["spec"]["authSecretRef"]["name"], thing["spec"]["authSecretRef"]["key"]))
        elif thing["kind"] == "ServiceMonitor":
            given = [
                end["authorization"]["credentials"] for end in thing["spec"]["endpoints"] if "authorization" in end
            ]
            named += [(one["name"], one["key"]) for one in given]
        for name, key in named:
            assert name in SECRET_VALUES or key in made[name] | {None}, f"{thing['kind']}: {name} has no {key}"


def test_what_is_made_is_long_enough_and_of_the_right_kind() -> None:
    made = secrets(rendered())
    assert re.fullmatch("[0-9a-f]{64}", made["mmcache-proxy"]["realm-secret"])
    others = [
        made["mmcache-auth"]["password"],
        made["mmcache-proxy"]["admin-token"],
        *made["mmcache-dashboard"].values(),
    ]
    assert all(re.fullmatch("[A-Za-z0-9]{48}", value) for value in others)
    assert len(set(others)) == 4


def test_the_webhooks_certificate_is_for_its_service() -> None:
    x509 = pytest.importorskip("cryptography.x509")
    found = rendered(version="1.20.2")
    (config,) = found.of("ValidatingWebhookConfiguration")
    (hook,) = config["webhooks"]
    told = hook["clientConfig"]["service"]
    made = secrets(found)["mmcache-operator-webhook"]
    certificate = x509.load_pem_x509_certificate(made["tls.crt"].encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert f"{told['name']}.{told['namespace']}.svc" in names.get_values_for_type(x509.DNSName)
    authority = x509.load_pem_x509_certificate(made["ca.crt"].encode())
    certificate.verify_directly_issued_by(authority)
    (service,) = [one for one in found.of("Service") if one["metadata"]["name"] == told["name"]]
    assert told["port"] in {port["port"] for port in service["spec"]["ports"]}


def test_the_config_of_a_pod_that_changes_restarts_it() -> None:
    sums = {
        pod["metadata"]["annotations"]["checksum/config"]
        for wish in ("default", "everything", "proxy-alone")
        for name, pod in pods(rendered(wish)) if name == "Deployment/mmcache-proxy"
    }  # fmt: skip
    assert len(sums) == 3


def test_a_pod_has_time_to_finish_what_is_under_way(found: Rendered) -> None:
    for thing in found.of("Deployment"):
        if thing["metadata"]["labels"]["app.kubernetes.io/component"] == "proxy":
            drains = re.search(r"^drain_seconds = (\d+)", found.one("ConfigMap", "proxy")["data"]["mmcache.toml"], re.M)
            longest = int(drains[1]) if drains else ServerSettings("x").drain_seconds
            waits = int(container(thing)["lifecycle"]["preStop"]["exec"]["command"][1])
            assert thing["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > longest + waits


def test_whole_numbers_stay_whole() -> None:
    """helm hands them on as floats, and TOML tells 8090 from 8090.0."""
    text = rendered("everything").one("ConfigMap", "proxy")["data"]["mmcache.toml"]
    assert "port = 8090\n" in text
    assert yaml is not None
    assert "rate = 12.5\n" in text
