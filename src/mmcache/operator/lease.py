"""Who works where several operators run: the one that holds a Lease and renews it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from mmcache.model.errors import KubernetesError
from mmcache.operator.api import LEASES, Api, Object

LASTS_SECONDS = 15
RENEW_SECONDS = 4.0
_log = logging.getLogger("mmcache.operator")


class Leadership:
    """`renew` every few seconds; `held` is asked before each turn, and within long ones.

    A holder gives up before others may take over, by its own monotonic clock; others wait until they have seen no
    change for the whole time, by theirs. So no clock has to be right, only to run at the usual speed.
    """

    def __init__(
        self, api: Api, namespace: str, name: str, identity: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api, self._namespace, self._name, self._identity, self._clock = api, namespace, name, identity, clock
        self._renewed = float("-inf")
        self._seen: tuple[Any, float] = (None, 0.0)

    @property
    def held(self) -> bool:
        """Whether it is ours now."""
        return self._clock() - self._renewed < LASTS_SECONDS * 2 / 3

    def renew(self) -> bool:
        """Take it, or keep it; whether it is ours. Errors are told in the log: it is lost when they last."""
        begun, was = self._clock(), self.held
        try:
            if self._taken():
                self._renewed = begun
        except KubernetesError as error:
            if error.code != 409:  # another was faster
                _log.warning("the lease could not be renewed: %s", error)
        if self.held != was:
            _log.info("%s %s the lease %s", self._identity, "lost" if was else "holds", self._name)
        return self.held

    def give_up(self) -> None:
        """So that the next one need not wait. Raises `KubernetesError`."""
        found = self._api.get(LEASES, self._namespace, self._name)
        self._renewed = float("-inf")
        if found is not None and found["spec"].get("holderIdentity") == self._identity:
            found["spec"]["holderIdentity"] = ""
            self._api.replace(LEASES, found)

    def _taken(self) -> bool:
        found = self._api.get(LEASES, self._namespace, self._name)
        if found is None:
            self._api.create(LEASES, self._lease({"metadata": {}, "spec": {}}))
            return True
        spec = found.get("spec") or {}
        holder, state = spec.get("holderIdentity"), (spec.get("holderIdentity"), spec.get("renewTime"))
        if state != self._seen[0]:
            self._seen = state, self._clock()
        if holder not in (None, "", self._identity):
            lasts = float(spec.get("leaseDurationSeconds") or LASTS_SECONDS)
            if self._clock() - self._seen[1] < lasts:
                return False
        self._api.replace(LEASES, self._lease(found))  # refused with 409 where another wrote since
        return True

    def _lease(self, found: Object) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = found.get("spec") or {}
        ours = spec.get("holderIdentity") == self._identity
        changes = int(spec.get("leaseTransitions") or 0) + (0 if ours else 1)
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**found["metadata"], "name": self._name, "namespace": self._namespace},
            "spec": {
                **spec, "holderIdentity": self._identity, "leaseDurationSeconds": LASTS_SECONDS, "renewTime": now,
                "acquireTime": spec.get("acquireTime", now) if ours else now, "leaseTransitions": changes,
            },
        }  # fmt: skip
