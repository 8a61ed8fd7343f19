"""What Kubernetes tells us, made into turns: kopf watches and keeps the finalizer, `Cluster` does the rest.

A resource is read anew in each turn, so that nothing depends on having heard of a change: that only ends a pause.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import kopf

from mmcache.model.errors import KubernetesError
from mmcache.operator import resource, webhook
from mmcache.operator.api import Api
from mmcache.operator.cluster import Cluster
from mmcache.operator.names import FINALIZER, GROUP, PLURAL, VERSION

MOST_TURNS = 32
"""At the same time."""
_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Between turns that fail."""
_DRAIN_SECONDS = 1.0
_WITHOUT_LEASE_SECONDS = 1.0
_LISTEN_SECONDS = 0.25
_log = logging.getLogger("mmcache.operator")
_T = TypeVar("_T")


class Clusters:
    """Those that are there, by uid. Turns run in threads, one at a time for each cluster."""

    def __init__(self, api: Api, leading: Callable[[], bool]) -> None:
        self._api, self.leading = api, leading
        self._threads = ThreadPoolExecutor(MOST_TURNS, "mmcache-turn")
        self._locks: dict[str, asyncio.Lock] = {}
        self.known: dict[str, tuple[str, str, Cluster]] = {}
        """Namespace, name and cluster."""
        self._generations: dict[str, int] = {}
        self._changed: set[str] = set()
        self.turns = self.failures = 0
        self.turned: dict[str, float] = {}
        """When the last turn of each ended that did not fail: seconds since 1970."""

    async def turns_of(self, uid: str, namespace: str, name: str, stopped: Any) -> None:
        """Turns, until it is stopped."""
        cluster = self._cluster(uid, namespace, name)
        failed, led = 0, True
        while not stopped:
            if not self.leading():
                if led:
                    await self._alone(uid, cluster.forget)
                led = False
                await stopped.wait(_WITHOUT_LEASE_SECONDS)
                continue
            led = True
            try:
                pause = await self._alone(uid, lambda: cluster.turn(lambda: bool(stopped) or not self.leading()))
                failed = 0
                self._turned(uid)
            except KubernetesError as error:
                failed += 1
                self.failures += 1
                pause = _PAUSES[min(failed, len(_PAUSES)) - 1]
                _log.warning("%s/%s: the turn failed, the next is in %g s: %s", namespace, name, pause, error)
            self.turns += 1
            await self._rest(uid, pause, stopped)
        if self.leading():
            try:
                await self._alone(uid, cluster.close)
            except KubernetesError as error:
                _log.info("%s/%s: what is usual was not saved: %s", namespace, name, error)

    def heard(self, uid: str, generation: int) -> None:
        """Of a resource; where its `spec` changed, its next turn is now."""
        if self._generations.get(uid) != generation:
            self._generations[uid] = generation
            self._changed.add(uid)

    def gone(self, uid: str) -> None:
        """The resource is deleted."""
        self.known.pop(uid, None)
        self._locks.pop(uid, None)
        self.turned.pop(uid, None)
        self._generations.pop(uid, None)
        self._changed.discard(uid)

    async def _rest(self, uid: str, seconds: float, stopped: Any) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not stopped and uid not in self._changed and (left := end - loop.time()) > 0:
            await stopped.wait(min(left, _LISTEN_SECONDS))
        self._changed.discard(uid)

    async def drained(self, uid: str, namespace: str, name: str) -> None:
        """Until it may be deleted. After a restart of the operator it is asked again."""
        cluster = self._cluster(uid, namespace, name)
        while True:
            if self.leading():
                try:
                    over = await self._alone(uid, lambda: cluster.drain(lambda: not self.leading()))
                    self._turned(uid)
                    if over:
                        break
                except KubernetesError as error:
                    self.failures += 1
                    _log.warning("%s/%s: draining: %s", namespace, name, error)
            await asyncio.sleep(_DRAIN_SECONDS)
        self.gone(uid)  # nobody may be told of the deletion itself, where the watch breaks off just now

    def close(self) -> None:
        """Waits for the turns that are under way."""
        self._threads.shutdown(wait=True)

    def _turned(self, uid: str) -> None:
        if uid in self.known:
            self.turned[uid] = time.time()

    def _cluster(self, uid: str, namespace: str, name: str) -> Cluster:
        if uid not in self.known:
            self.known[uid] = (namespace, name, Cluster(self._api, namespace, name))
        return self.known[uid][2]

    async def _alone(self, uid: str, do: Callable[[], _T]) -> _T:
        async with self._locks.setdefault(uid, asyncio.Lock()):
            # A turn that has begun is waited for, even where its caller is not: the next must not begin beside it.
            running = asyncio.get_running_loop().run_in_executor(self._threads, do)
            return await asyncio.shield(running)


def registered(
    clusters: Clusters, login: Callable[[], kopf.ConnectionInfo], started: Callable[[], Awaitable[None]],
    ended: Callable[[], Awaitable[None]], server: kopf.WebhookServer | None,
) -> kopf.OperatorRegistry:  # fmt: skip
    """Kopf's handlers. started, ended: called within its loop."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        return login()

    @kopf.on.startup(registry=registry)
    async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        quiet(settings)
        if server is not None:
            settings.admission.server = server
        await started()

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await ended()

    @kopf.daemon(
        GROUP, VERSION, PLURAL, registry=registry, id="turns", cancellation_backoff=60.0, cancellation_timeout=10.0
    )
    async def turns(uid: str, namespace: str | None, name: str, stopped: Any, **_: Any) -> None:
        await clusters.turns_of(uid, namespace or "", name, stopped)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry, id="heard")
    async def heard(uid: str | None, meta: kopf.Meta, type: str | None, **_: Any) -> None:
        if type == "DELETED":
            clusters.gone(uid or "")
        else:
            clusters.heard(uid or "", int(meta.get("generation") or 0))

    @kopf.on.delete(GROUP, VERSION, PLURAL, registry=registry, id="drain")
    async def drain(uid: str, namespace: str | None, name: str, **_: Any) -> None:
        await clusters.drained(uid, namespace or "", name)

    if server is not None:

        @kopf.on.validate(GROUP, VERSION, PLURAL, registry=registry, id=webhook.ID)
        async def validate(body: kopf.Body, **told: Any) -> None:
            if wrong := refusals(body, told.get("old") if told.get("operation") == "UPDATE" else None):
                raise kopf.AdmissionError("; ".join(wrong), code=422)

    return registry


def refusals(body: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[str]:
    """What a webhook says. What does not change may be wrong: else a bad resource could not even be deleted."""
    if old is not None and (old.get("spec") == body.get("spec") or body["metadata"].get("deletionTimestamp")):
        return []
    return resource.faults(body, old)


def quiet(settings: kopf.OperatorSettings) -> None:
    """Kopf writes a finalizer and one annotation, under our name; it posts no events and asks for no other rights."""
    settings.persistence.finalizer = FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, key="last-seen")
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.networking.request_timeout = 30.0
    settings.watching.server_timeout = 300  # a whole number: 1.20 takes no other
    settings.watching.client_timeout = 330.0
