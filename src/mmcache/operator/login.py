"""Where the API server is, and who we are there: found once, for kopf's watches and for our own words."""

from __future__ import annotations

from pathlib import Path

import kopf
import msgspec
import yaml
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError

from mmcache.model.errors import KubernetesError

_UNREADABLE = (
    ConfigError, OSError, AssertionError, LookupError, TypeError, AttributeError, yaml.YAMLError, msgspec.MsgspecError,
)  # fmt: skip


def found(kubeconfig: Path | None = None) -> SingleConfig:
    """From this file, else as `kubectl` finds it: within a pod its service account, else $KUBECONFIG or ~/.kube.

    Raises `KubernetesError`.
    """
    try:
        config = KubeConfig.from_env() if kubeconfig is None else KubeConfig.from_file(kubeconfig)
        single = config.get()
    except _UNREADABLE as error:
        raise KubernetesError(f"no API server is known ({error}): is the kubeconfig right?") from error
    if single is None or single.user is None:
        raise KubernetesError("the kubeconfig names no user for its current context")
    return single


def connection(config: SingleConfig) -> kopf.ConnectionInfo:
    """The same for kopf. Asked again when the server takes a token no more: a service account's is read anew."""
    user, cluster = config.user, config.cluster
    assert user is not None
    token = user.token
    if token is None and user.token_file is not None:
        token = Path(user.token_file).read_text(encoding="ascii").strip()

    def place(path: str | None) -> str | None:
        return None if path is None else str(config.abs_file(path))

    return kopf.ConnectionInfo(
        server=cluster.server,
        ca_path=place(cluster.certificate_auth) if cluster.certificate_auth_data is None else None,
        ca_data=cluster.certificate_auth_data,
        insecure=cluster.insecure or None,
        username=user.username,
        password=user.password,
        token=token,
        certificate_path=place(user.client_cert) if user.client_cert_data is None else None,
        certificate_data=user.client_cert_data,
        private_key_path=place(user.client_key) if user.client_key_data is None else None,
        private_key_data=user.client_key_data,
        default_namespace=config.namespace,
    )
