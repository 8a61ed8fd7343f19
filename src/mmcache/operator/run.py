"""`serve`: the operator, from its start to its end."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import kopf
from lightkube.config.kubeconfig import SingleConfig

from mmcache.model.errors import KubernetesError, ScaleError
from mmcache.operator import login
from mmcache.operator.api import CACHES, Api
from mmcache.operator.handlers import Clusters, registered
from mmcache.operator.lease import RENEW_SECONDS, Leadership
from mmcache.operator.metrics import Watch
from mmcache.operator.names import GROUP, PLURAL
from mmcache.operator.rbac import LEASE

_BEAT_SECONDS = 1.0
_log = logging.getLogger("mmcache.operator")


@dataclass(frozen=True)
class Webhook:
    """Where it listens, and with which certificate."""

    host: str
    port: int
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Options:
    """How it runs."""

    identity: str
    namespaces: tuple[str, ...] = ()
    """Whose resources; empty: all."""
    lease_namespace: str | None = None
    """Where the lease is; None: none, there is never a second operator."""
    listen: tuple[str, int] | None = None
    """For `/metrics`, `/healthz` and `/readyz`; port 0: a free one."""
    webhook: Webhook | None = None
    kubeconfig: Path | None = None
    """None: as kubectl finds it."""


def serve(
    options: Options, *, stop: threading.Event | None = None, ready: threading.Event | None = None
) -> None:  # fmt: skip
    """Until a signal or `stop`. Raises `ScaleError`: no API server, no rights, or no such resource there."""
    config = login.found(options.kubeconfig)
    api = Api.connected(config)
    try:
        _check(api, options)
        _Run(api, options, config, stop, ready).run()
    finally:
        api.close()


def _check(api: Api, options: Options) -> None:
    """What a watch would only wait for."""
    for namespace in options.namespaces or ("",):
        try:
            api.list(CACHES, namespace)
        except KubernetesError as error:
            if error.code == 404:
                raise ScaleError(
                    f"{PLURAL}.{GROUP} are not known here: mmcache operator crd | kubectl apply -f -"
                ) from error
            raise


class _Run:
    def __init__(
        self, api: Api, options: Options, config: SingleConfig, stop: threading.Event | None,
        ready: threading.Event | None,
    ) -> None:  # fmt: skip
        self._options, self._config, self._stop, self._ready = options, config, stop, ready
        self._lease: Leadership | None = None
        if options.lease_namespace is not None:
            self._lease = Leadership(api, options.lease_namespace, LEASE, options.identity)
        self._clusters = Clusters(api, self._leading)
        self._watch = None if options.listen is None else Watch(options.listen, self._clusters)
        self._tasks: list[asyncio.Task[None]] = []

    def run(self) -> None:
        options = self._options
        server = None
        if options.webhook is not None:
            at = options.webhook
            server = kopf.WebhookServer(addr=at.host, port=at.port, certfile=at.certificate, pkeyfile=at.key)
        try:
            asyncio.run(kopf.operator(
                registry=registered(self._clusters, self._login, self._started, self._ended, server),
                settings=kopf.OperatorSettings(), standalone=True, clusterwide=not options.namespaces,
                namespaces=options.namespaces, stop_flag=self._stop,
            ))  # fmt: skip
        finally:
            self._clusters.close()
            if self._watch is not None:
                self._watch.close()

    def _login(self) -> kopf.ConnectionInfo:
        return login.connection(self._config)

    def _leading(self) -> bool:
        return self._lease is None or self._lease.held

    async def _started(self) -> None:
        if self._lease is not None:
            await asyncio.to_thread(self._lease.renew)
            self._tasks.append(asyncio.create_task(self._keep_lease(self._lease)))
        self._tasks.append(asyncio.create_task(self._beat()))
        if self._ready is not None:
            self._ready.set()
        if self._watch is not None:
            self._watch.ready = True
        _log.info("serving %s", ", ".join(self._options.namespaces) or "all namespaces")

    async def _ended(self) -> None:
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._lease is not None and self._lease.held:
            try:
                await asyncio.to_thread(self._lease.give_up)
            except KubernetesError as error:
                _log.info("the lease was not given up: %s", error)

    async def _keep_lease(self, lease: Leadership) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            await asyncio.to_thread(lease.renew)

    async def _beat(self) -> None:
        while True:
            if self._watch is not None:
                self._watch.beat()
            await asyncio.sleep(_BEAT_SECONDS)
