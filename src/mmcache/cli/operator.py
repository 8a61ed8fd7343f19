"""`mmcache operator`: a shared cache that grows with its load, on Kubernetes."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from mmcache.cli.output import Exit
from mmcache.model.errors import ScaleError, SettingsError

if TYPE_CHECKING:
    from mmcache.operator.api import Api

app = App(name="operator", help="Run a cluster of Valkey on Kubernetes that grows with its load: `MultimodalCache`.")


@app.command
def run(
    *,
    namespace: Annotated[
        tuple[str, ...], Parameter(negative="", help="Serve the resources in it; may be given again. Default: in all.")
    ] = (),
    kubeconfig: Annotated[
        Path | None, Parameter(help="Default: within a pod its service account, else $KUBECONFIG, ~/.kube/config.")
    ] = None,
    lease: Annotated[
        str | None, Parameter(help="Take a Lease in this namespace first: of several operators one works.")
    ] = None,
    listen: Annotated[
        str | None, Parameter(help="HOST:PORT of /metrics, /healthz and /readyz, such as 0.0.0.0:8080.")
    ] = None,
    webhook: Annotated[
        str | None, Parameter(help="HOST:PORT where the API server may ask, for servers without CEL in schemas.")
    ] = None,
    webhook_cert: Annotated[Path | None, Parameter(help="Its certificate, in PEM.")] = None,
    webhook_key: Annotated[Path | None, Parameter(help="Its key, in PEM.")] = None,
    verbose: Annotated[bool, Parameter(negative="", help="Say more on stderr.")] = False,
) -> int:
    """Reconcile every `MultimodalCache`, until SIGTERM or Ctrl-C. Can be killed at any moment and started again.

    Example: mmcache operator run --namespace inference --lease mmcache --listen 0.0.0.0:8080
    """
    _installed()
    from mmcache.operator.run import Options, Webhook, serve

    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )  # fmt: skip
    for name in ("kopf", "httpx2"):
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.WARNING)
    answering = None
    if webhook is not None:
        if webhook_cert is None or webhook_key is None:
            raise SettingsError("--webhook needs --webhook-cert and --webhook-key: API servers ask by TLS only")
        answering = Webhook(*_address(webhook, "--webhook"), webhook_cert, webhook_key)
    serve(
        Options(
            identity=f"{socket.gethostname()}_{os.getpid()}", namespaces=namespace, lease_namespace=lease,
            listen=None if listen is None else _address(listen, "--listen"), webhook=answering, kubeconfig=kubeconfig,
        )
    )  # fmt: skip
    return Exit.DONE


@app.command
def crd(
    *,
    cel: Annotated[bool, Parameter(help="Rules across fields, which servers from 1.27 on know.")] = True,
    form: Annotated[str, Parameter(name="--format", help="`yaml` or `json`; `md`: a page about its fields.")] = "yaml",
    apply: Annotated[
        bool, Parameter(negative="", show_default=False, help="Bring the API server's up to date instead.")
    ] = False,
    kubeconfig: Annotated[Path | None, Parameter(help="For --apply; as in `run`.")] = None,
) -> int:
    """Print the CustomResourceDefinition.

    Example: mmcache operator crd | kubectl apply -f -
    """
    from mmcache.operator.crd import definition

    if apply:
        _installed()
        from mmcache.operator.hooks import apply_definition

        with _connected(kubeconfig) as api:
            print(f"{apply_definition(api)} is up to date")
        return Exit.DONE
    if form == "md":
        from mmcache.operator.reference import page

        print(page(), end="")
        return Exit.DONE
    return _printed([definition(cel)], form)


@app.command
def remove(
    name: str,
    /,
    *,
    namespace: Annotated[str, Parameter(help="Where it is.")],
    timeout: Annotated[float, Parameter(help="Seconds to wait until it is gone.")] = 600.0,
    kubeconfig: Annotated[Path | None, Parameter(help="As in `run`.")] = None,
) -> int:
    """Delete a `MultimodalCache`, and wait until its operator has ended all that belongs to it.

    Example: mmcache operator remove shared --namespace inference
    """
    _installed()
    from mmcache.operator.hooks import remove as removed

    with _connected(kubeconfig) as api:
        there = removed(api, namespace, name, timeout)
    print(f"{namespace}/{name} is gone" if there else f"there is no {namespace}/{name}")
    return Exit.DONE


@app.command
def rbac(
    *,
    account: Annotated[str, Parameter(help="The operator's service account.")] = "mmcache-operator",
    home: Annotated[str, Parameter(help="The namespace that the operator runs in.")] = "mmcache",
    namespace: Annotated[
        tuple[str, ...], Parameter(negative="", help="Serve only the resources in it; may be given again.")
    ] = (),
    secret: Annotated[
        tuple[str, ...],
        Parameter(negative="", help="Read only the Secret of this name; may be given again. Default: all."),
    ] = (),
    form: Annotated[str, Parameter(name="--format", help="`yaml` or `json`.")] = "yaml",
) -> int:
    """Print what the operator must be allowed to do: no more than it does.

    Example: mmcache operator rbac --home mmcache --namespace inference --secret shared-auth | kubectl apply -f -
    """
    from mmcache.operator.rbac import manifests

    return _printed(manifests(account, home, namespace, secret), form)


def _printed(found: list[dict[str, Any]], form: str) -> int:
    if form == "json":
        wrapped = {"apiVersion": "v1", "kind": "List", "items": found}
        print(json.dumps(found[0] if len(found) == 1 else wrapped, indent=2))
        return Exit.DONE
    if form != "yaml":
        raise SettingsError(f"--format is yaml or json, not {form}")
    try:
        import yaml
    except ImportError as error:
        raise SettingsError("YAML needs PyYAML: pip install 'mmcache[operator]', or take --format json") from error
    print(yaml.safe_dump_all(found, sort_keys=False, width=120), end="")
    return Exit.DONE


@contextmanager
def _connected(kubeconfig: Path | None) -> Iterator[Api]:
    from mmcache.operator.api import Api
    from mmcache.operator.login import found

    api = Api.connected(found(kubeconfig))
    try:
        yield api
    finally:
        api.close()


def _installed() -> None:
    try:
        import mmcache.operator.run  # noqa: F401
    except ImportError as error:
        raise ScaleError(f"the operator needs {error.name}: pip install 'mmcache[operator]'") from error


def _address(written: str, option: str) -> tuple[str, int]:
    host, _, port = written.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise SettingsError(f"{option} is HOST:PORT, not {written}")
    return host.strip("[]"), int(port)
