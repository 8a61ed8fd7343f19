"""The proxy as the chart starts it, in front of a real cluster that speaks TLS and asks for certificates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.helm_stage import models, until
from tests.unit.deploy.chart import Rendered, container, environment, needs_helm, objects_in, template

pytest.importorskip("uvicorn")

from mmcache.lab.servers.certificates import Certificates, certificates
from mmcache.lab.servers.cluster import Cluster, cluster
from mmcache.model.errors import AssetError
from mmcache.scale.binaries import choose

pytestmark = [pytest.mark.slow, needs_helm]
NAME = "shared.vision.svc"
"""What the nodes' one certificate is for: none of their addresses."""


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    try:
        choose(tls=True)
        return certificates(tmp_path_factory.mktemp("pem"), NAME, ask_clients=True)
    except AssetError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def safe(papers: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("nodes"), 3, 0, tls=papers) as made:
        yield made


@contextmanager
def proxy(folder: Path, upstream: str, objects: Mapping[str, Mapping[str, Path]], **values: Any) -> Iterator[str]:
    """Its address. objects: what is in the Secrets and ConfigMaps that the user has made."""
    done = template({"cluster": {"enabled": False}, "dashboard": {"enabled": False}, "proxy": values})
    assert done.returncode == 0, done.stderr
    found = Rendered("", "", tuple(objects_in(done.stdout)))
    deployment = found.one("Deployment", "proxy")
    text = found.one("ConfigMap", "proxy")["data"]["mmcache.toml"]
    there = {one["name"]: one for one in deployment["spec"]["template"]["spec"]["volumes"]}
    for mount in container(deployment)["volumeMounts"]:
        volume = there[mount["name"]]
        told = volume.get("secret") or volume.get("configMap") or {}
        if "items" in told:
            at = folder / mount["name"]
            at.mkdir(parents=True)
            for item in told["items"]:
                source = objects[told.get("secretName") or told["name"]][item["key"]]
                (at / item["path"]).write_bytes(source.read_bytes())
            text = text.replace(f'"{mount["mountPath"]}/', f'"{at}/')
    file = folder / "mmcache.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, "utf-8")
    words = [word.replace("/etc/mmcache/mmcache.toml", str(file)) for word in container(deployment)["args"]]
    words += ["--host", "127.0.0.1", "--port", "0", "--upstream", upstream]
    told = environment(found, deployment) | {"MMCACHE_ROOT": str(folder / "cache"), "MMCACHE_REALM_SECRET": "ab" * 32}
    process = subprocess.Popen(
        [sys.executable, "-m", "mmcache.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=os.environ | told,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def asked(address: str, text: str) -> str:
    """`miss` or `hit`."""
    request = urllib.request.Request(
        f"{address}/v1/embeddings",
        json.dumps({"model": "clip", "input": [text]}).encode(),
        {"authorization": "Bearer sk-one", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.headers["x-mmcache"].partition(";")[0])


def keys(safe: Cluster) -> int:
    return sum(int(node.server.ask("DBSIZE")) for node in safe.primaries)


def test_proxies_share_over_tls(papers: Certificates, safe: Cluster, tmp_path: Path) -> None:
    objects = {
        "authorities": {"bundle.pem": papers.authority},
        "strangers": {"bundle.pem": papers.stranger},
        "mine": {"tls.crt": papers.client_certificate, "tls.key": papers.client_key},
    }
    values: dict[str, Any] = {
        "config": {"cache": {"shared": safe.url}},
        "sharedTls": {
            "authority": {"existingConfigMap": "authorities", "key": "bundle.pem"},
            "client": {"existingSecret": "mine"}, "name": NAME,
        },
    }  # fmt: skip
    wrong = values["sharedTls"] | {"authority": {"existingConfigMap": "strangers", "key": "bundle.pem"}}
    with models() as upstream:
        with proxy(tmp_path / "one", upstream, objects, **values) as one:
            before = keys(safe)
            assert asked(one, "a cat") == "miss"
            until(lambda: keys(safe) > before, "what was computed is in the cluster")
            with proxy(tmp_path / "two", upstream, objects, **values) as two:
                until(lambda: asked(two, "a cat") == "hit", "another proxy finds it")
        held = keys(safe)
        with proxy(tmp_path / "three", upstream, objects, **values | {"sharedTls": wrong}) as three:
            assert asked(three, "a cat") == "miss", "who trusts another authority is served, and shares nothing"
            assert asked(three, "a cat") == "hit", "but has a cache of its own"
        assert keys(safe) == held
