"""How the chart's proxies trust what they share, where that speaks TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.deploy.chart import Rendered, container, needs_helm, objects_in, rendered, template

pytest.importorskip("uvicorn")

from mmcache.server.settings_file import read
from mmcache.settings import SharedSettings

pytestmark = needs_helm
OWN = {"config": {"cache": {"shared": "valkeys://cache.example"}}}


def made(**values: Any) -> Rendered:
    done = template(values)
    assert done.returncode == 0, done.stderr
    return Rendered("", "", tuple(objects_in(done.stdout)))


def shared(found: Rendered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As the proxy reads it."""
    monkeypatch.setenv("MMCACHE_ADMIN_TOKEN", "a" * 32)
    monkeypatch.setenv("MMCACHE_REALM_SECRET", "ab" * 32)
    monkeypatch.setenv("MMCACHE_INGEST_TOKEN", "b" * 32)
    file = tmp_path / "mmcache.toml"
    file.write_text(found.one("ConfigMap", "proxy")["data"]["mmcache.toml"], "utf-8")
    return read(file).cache["shared"]


def volumes(found: Rendered) -> dict[str, Any]:
    """Those of the proxy, by where they are mounted."""
    deployment = found.one("Deployment", "proxy")
    there = {one["name"]: one for one in deployment["spec"]["template"]["spec"]["volumes"]}
    mounts = container(deployment)["volumeMounts"]
    assert {one["name"] for one in mounts} == there.keys(), "what is mounted, is there"
    assert all(one.get("readOnly") for one in mounts if one["name"] not in ("cache", "tmp"))
    return {one["mountPath"]: there[one["name"]] for one in mounts}


def test_the_releases_own_nodes_are_trusted_by_their_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rendered("tls")
    assert shared(found, tmp_path, monkeypatch) == SharedSettings(
        "valkeys://mmcache.vision.svc:6379?cluster=true", tls_ca="/etc/mmcache-authority/ca.crt",
        tls_name="mmcache.vision.svc", tls_cert="/etc/mmcache-client/tls.crt", tls_key="/etc/mmcache-client/tls.key",
    )  # fmt: skip
    mounted = volumes(found)
    # The nodes' private key is in the same Secret, and is none of the proxy's.
    assert mounted["/etc/mmcache-authority"]["secret"] == {
        "secretName": "papers", "defaultMode": 0o440, "items": [{"key": "ca.crt", "path": "ca.crt"}],
    }  # fmt: skip
    assert mounted["/etc/mmcache-client"]["secret"] == {
        "secretName": "proxy-papers", "defaultMode": 0o440,
        "items": [{"key": "tls.crt", "path": "tls.crt"}, {"key": "tls.key", "path": "tls.key"}],
    }  # fmt: skip


def test_another_cache_is_trusted_as_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rendered("own-cache")
    assert shared(found, tmp_path, monkeypatch) == SharedSettings(
        "valkeys://me@cache.example?cluster=true", tls_ca="/etc/mmcache-authority/ca.crt", tls_name="cache",
        replica_reads=True,
    )  # fmt: skip
    assert volumes(found)["/etc/mmcache-authority"]["configMap"] == {
        "name": "authorities", "items": [{"key": "bundle.pem", "path": "ca.crt"}],
    }  # fmt: skip


def test_by_itself_it_is_trusted_as_the_image_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also beside nodes of the release: their authority does not vouch for others."""
    for cluster in ({"enabled": False}, {"spec": {"tls": {"secretName": "papers"}}}):
        found = made(cluster=cluster, proxy=OWN)
        assert shared(found, tmp_path, monkeypatch) == "valkeys://cache.example"
        assert not [path for path in volumes(found) if "authority" in path or "client" in path]


def test_without_tls_nothing_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rendered()
    assert shared(found, tmp_path, monkeypatch) == "valkey://mmcache.vision.svc:6379?cluster=true"
    assert not [path for path in volumes(found) if "authority" in path or "client" in path]


def test_what_is_said_in_the_file_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further fields of the release's own nodes need no address, and an authority may come with the image."""
    table = {"tls_ca": "/etc/ssl/ours.pem", "timeout_seconds": 2}
    found = made(
        cluster={"spec": {"tls": {"secretName": "papers"}}}, proxy={"config": {"cache": {"shared": table}}}
    )  # fmt: skip
    assert shared(found, tmp_path, monkeypatch) == SharedSettings(
        "valkeys://mmcache.vision.svc:6379?cluster=true", tls_ca="/etc/ssl/ours.pem", tls_name="mmcache.vision.svc",
        timeout_seconds=2,
    )  # fmt: skip


def test_another_authority_restarts_the_proxies() -> None:
    def told(name: str) -> Any:
        found = made(
            cluster={"enabled": False}, proxy=OWN | {"sharedTls": {"authority": {"existingSecret": name}}}
        )  # fmt: skip
        return found.one("Deployment", "proxy")["spec"]["template"]

    assert told("one") != told("two")
