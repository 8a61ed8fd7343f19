"""etcd, the API server and its controllers on loopback: nothing outlives its owner, nothing is written elsewhere."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmcache.lab.cdc.process import await_ready, listens, stop
from mmcache.lab.kubernetes.api import Api, ApiError, Json, path_of
from mmcache.lab.kubernetes.build import Servers, find
from mmcache.lab.servers.certificates import certificates
from mmcache.lab.servers.process import bound_to_us, free_ports
from mmcache.model.errors import AssetError

CONTROLLERS = (
    "statefulset", "deployment", "replicaset", "job", "garbagecollector", "disruption", "namespace", "endpoint",
    "serviceaccount",
)  # fmt: skip
"""Those that run; no machine is watched and no token minted unasked."""


@dataclass(frozen=True)
class ControlPlane:
    """A running API server. `admin` may do everything."""

    folder: Path
    port: int
    authority: Path
    admin: Api
    kubeconfig: Path
    """The administrator's."""

    @property
    def url(self) -> str:
        """Of the server; with TLS."""
        return f"https://127.0.0.1:{self.port}"

    def service_account_token(self, namespace: str, name: str, seconds: int = 24 * 3600) -> str:
        """A token of a service account, which may do what its roles allow. Raises `ApiError` where there is none."""
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        made = self.admin.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", asked)
        token: str = made["status"]["token"]
        return token

    def kubeconfig_of(self, token: str, name: str, namespace: str = "default") -> Path:
        """A file for the clients of whoever has the token; only its owner may read it."""
        cluster = {"server": self.url, "certificate-authority": str(self.authority)}
        told = {
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": "lab", "user": name, "namespace": namespace}}],
        }  # fmt: skip
        path = self.folder / f"{name}.kubeconfig"
        path.touch(0o600)
        path.write_text(json.dumps(told))
        return path

    def as_service_account(self, namespace: str, name: str) -> Path:
        """The kubeconfig file of a service account."""
        return self.kubeconfig_of(self.service_account_token(namespace, name), f"{namespace}-{name}", namespace)

    def api_of(self, token: str) -> Api:
        """Plain words to the server as somebody else."""
        return Api(self.port, token, self.authority)

    def kubectl(self, *words: str, put: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """As administrator; `put` goes into its input. Raises `AssetError` where it is missing, or says no."""
        program = shutil.which("kubectl")
        if program is None:
            raise AssetError("kubectl is not here")
        done = subprocess.run(
            [program, "--kubeconfig", str(self.kubeconfig), *words], input=put, capture_output=True, text=True,
            check=False, timeout=120, env={"PATH": os.defpath, "HOME": str(self.folder)},
        )  # fmt: skip
        if check and done.returncode:
            raise AssetError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done

    def dry_run(self, things: Iterable[Mapping[str, Any]], namespace: str = "default") -> list[str]:
        """What the server says against each of these objects; nothing is kept. Namespaces must be there already."""
        return [said for thing in things if (said := self._refusal(thing, namespace)) is not None]

    def apply(self, thing: Mapping[str, Any], namespace: str = "default", **query: str) -> Json:
        """Create or change one object (server-side apply). Raises `ApiError`."""
        where, namespaced = self._resource(thing)
        named = {
            **thing["metadata"],
            **({"namespace": thing["metadata"].get("namespace", namespace)} if namespaced else {}),
        }
        whole = {**thing, "metadata": named}
        path = f"{path_of(whole, where)}/{named['name']}"
        return self.admin.patch(path, whole, "application/apply-patch+yaml", fieldManager="lab", force="true", **query)

    def _refusal(self, thing: Mapping[str, Any], namespace: str) -> str | None:
        name = f"{thing.get('kind')}/{thing.get('metadata', {}).get('name')}"
        try:
            self.apply(thing, namespace, dryRun="All")
        except ApiError as error:
            return f"{name}: {error}"
        return None

    def _resource(self, thing: Mapping[str, Any]) -> tuple[str, bool]:
        version, kind = thing["apiVersion"], thing["kind"]
        try:
            known = self.admin.get(f"/apis/{version}" if "/" in version else f"/api/{version}")["resources"]
        except ApiError as error:
            raise ApiError(error.code, error.reason, f"the server has no {version}") from error
        for resource in known:
            if resource["kind"] == kind and "/" not in resource["name"]:
                return resource["name"], resource["namespaced"]
        raise ApiError(404, "NotFound", f"the server has no {kind} in {version}")


@contextmanager
def control_plane(folder: Path, servers: Servers | None = None) -> Iterator[ControlPlane]:
    """Start it, wait until it is ready (some seconds, 600 MB), end it by its own process ids. Raises `AssetError`."""
    servers = servers or find()
    folder.mkdir(parents=True, exist_ok=True)
    made = certificates(folder / "certificates")
    store, peers, port = free_ports(3)
    token = secrets.token_hex(16)
    (folder / "tokens.csv").touch(0o600)
    (folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
    plane = ControlPlane(folder, port, made.authority, Api(port, token, made.authority), folder / "admin.kubeconfig")
    plane.kubeconfig_of(token, "admin")
    with ExitStack() as stack:
        etcd = [
            "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync", "--log-level", "error",
            "--listen-client-urls", f"http://127.0.0.1:{store}", "--advertise-client-urls", f"http://127.0.0.1:{store}",
            "--listen-peer-urls", f"http://127.0.0.1:{peers}", "--initial-advertise-peer-urls",
            f"http://127.0.0.1:{peers}", "--initial-cluster", f"default=http://127.0.0.1:{peers}",
        ]  # fmt: skip
        process = stack.enter_context(_running(servers, "etcd", etcd, folder))
        await_ready(process, lambda: listens(store), folder / "etcd.log", "etcd")
        server = [
            "--etcd-servers", f"http://127.0.0.1:{store}", "--secure-port", str(port), "--bind-address", "127.0.0.1",
            "--advertise-address", "192.0.2.1", "--tls-cert-file", str(made.certificate),
            "--tls-private-key-file", str(made.key),
            "--cert-dir", str(folder / "certs"), "--token-auth-file", str(folder / "tokens.csv"),
            "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.0.0.0/16",
            "--service-account-issuer", "https://lab", "--service-account-signing-key-file", str(made.key),
            "--service-account-key-file", str(made.certificate), "--disable-admission-plugins", "ServiceAccount",
            "--endpoint-reconciler-type", "none", "--profiling=false", "--watch-cache-sizes", "",
            "--max-requests-inflight", "2000", "--max-mutating-requests-inflight", "1000",
        ]  # fmt: skip
        process = stack.enter_context(_running(servers, "kube-apiserver", server, folder))
        await_ready(process, plane.admin.ready, folder / "kube-apiserver.log", "the API server")
        manager = [
            "--kubeconfig", str(plane.kubeconfig), "--controllers", ",".join(CONTROLLERS), "--leader-elect=false",
            "--port", "0", "--secure-port", "0", "--kube-api-qps", "500", "--kube-api-burst", "1000",
            "--use-service-account-credentials=false", "--profiling=false",
        ]  # fmt: skip
        stack.enter_context(_running(servers, "kube-controller-manager", manager, folder))
        stack.callback(plane.admin.close)
        yield plane


@contextmanager
def _running(servers: Servers, name: str, words: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [*bound_to_us(), str(servers[name]), *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder,
            env={"PATH": os.defpath, "HOME": str(folder), "GOMAXPROCS": "2"},
        )  # fmt: skip
    try:
        yield process
    finally:
        stop(process, signal.SIGKILL if name == "etcd" else signal.SIGTERM)
