"""One resource and its cluster, turn by turn: read what is wanted, let the controller do its step, tell."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from mmcache.model.errors import KubernetesError, ScaleError, SettingsError
from mmcache.operator import events, manifests, owned, passwords, rules, secrets, status, troubles
from mmcache.operator.api import CACHES, CONFIG_MAPS, Api, Object
from mmcache.operator.names import FORCE_DELETE
from mmcache.operator.platform import KubernetesPlatform
from mmcache.operator.resource import Wish, understood
from mmcache.operator.secrets import Secrets
from mmcache.scale.access import Access
from mmcache.scale.controller import Controller
from mmcache.scale.status import Happened, Phase, Status

STEADY_SECONDS = 5.0
BUSY_SECONDS = 1.0
NEXT_SECONDS = 0.2
"""After a step that was done: the nodes have yet to hear of it from each other."""
MOVING_SECONDS = 0.1
"""Between two batches of slots."""
TELL_SECONDS = 10.0
"""Figures are written so often at most."""
TELL_BUSY_SECONDS = 2.0
SAVE_SECONDS = 60.0
"""What is usual is saved so often, and what somebody took away beside the pods is put back."""
NODE_SECONDS = 5.0
_OLDER = 4
_REFUSED = (400, 403, 404, 409, 422)

_WAITING = (Phase.STEADY, Phase.BLOCKED, Phase.UNKNOWN)
_log = logging.getLogger("mmcache.operator")


class Cluster:
    """One thread at a time. What it knows from turn to turn can be lost: then it is learned or done again."""

    def __init__(self, api: Api, namespace: str, name: str, clock: Callable[[], float] = time.time) -> None:
        self._api, self._namespace, self._name, self._clock = api, namespace, name, clock
        self._platform: KubernetesPlatform | None = None
        self._controller: Controller | None = None
        self._secrets: Secrets | None = None
        self._saved: str | None = None
        self._saved_at = self._told_at = float("-inf")
        self._spread = False
        self._refusal: str | None = None
        self._generation = 0
        self._older: list[str] = []
        """Passwords that were good before, as far as this process knows."""
        self.status: Status | None = None
        """Of the last turn that did something."""
        self.refused = False
        """Its `spec` cannot be followed as it is; what runs goes on as it was."""

    def turn(self, cancelled: Callable[[], bool]) -> float:
        """Returns the seconds until the next. Raises `KubernetesError` where the API server is out of reach."""
        resource = self._api.get(CACHES, self._namespace, self._name)
        if resource is None or resource["metadata"].get("deletionTimestamp"):
            self.status, self.refused = (self.status if resource else None), False
            return STEADY_SECONDS
        try:
            wish = understood(resource)
        except SettingsError as error:
            self._refuse(resource, "InvalidSpec", str(error))
            return STEADY_SECONDS
        if changed := self._changed(wish):
            self._refuse(resource, "InvalidSpec", "; ".join(map(rules.fixed_message, changed)))
            return STEADY_SECONDS
        try:
            controller = self._controller_for(wish)
        except KubernetesError:
            raise
        except ScaleError as error:
            self._refuse(resource, "SecretMissing", str(error))
            return STEADY_SECONDS
        self._upkeep(wish)
        done = controller.turn(wish.cluster, self._clock(), cancelled)
        if self._platform is not None and controller.seen is not None:
            self._platform.mark(controller.seen, self._now())
        self._tell(resource, wish, done)
        self._save(wish, controller, at_once=any(one.reason == "Decided" for one in done.happened))
        if done.phase in _WAITING:
            return STEADY_SECONDS
        if done.reason == "Moving":
            return MOVING_SECONDS
        return BUSY_SECONDS if not done.happened or any(one.warning for one in done.happened) else NEXT_SECONDS

    def drain(self, cancelled: Callable[[], bool]) -> bool:
        """One turn of deletion; whether it is over. It always is in the end: see `drainSeconds`."""
        resource = self._api.get(CACHES, self._namespace, self._name)
        if resource is None or not resource["metadata"].get("deletionTimestamp"):
            return resource is None
        if (resource["metadata"].get("annotations") or {}).get(FORCE_DELETE) == "true":
            return True
        try:
            wish = understood(resource)
            since = _seconds(resource["metadata"]["deletionTimestamp"])
            if self._clock() - since >= wish.drain_seconds:
                late = f"not drained within {wish.drain_seconds} s; Kubernetes deletes what is left"
                self._post(wish, Happened("DrainTimedOut", late, warning=True))
                return True
            controller = self._controller_for(wish)
        except KubernetesError:
            raise
        except (SettingsError, ScaleError) as error:  # nobody could be asked; its owner's end ends what is left
            _log.warning("%s/%s is deleted without draining: %s", self._namespace, self._name, error)
            return True
        done = controller.drain(self._clock(), cancelled)
        if done.phase is Phase.DRAINING and done.nodes == 0:
            return True
        self._tell(resource, wish, done)
        return False

    def forget(self) -> None:
        """Another operator goes on: what it decides and learns meanwhile is read again, not undone."""
        self._controller = self._platform = self._saved = None
        self._generation = 0

    def close(self) -> None:
        """What is usual is saved once more. Raises `KubernetesError`."""
        if self._controller is not None and self._platform is not None:
            self._save(self._platform.wish, self._controller, at_once=True)

    def _controller_for(self, wish: Wish) -> Controller:
        """With what the nodes are talked to now. Raises `ScaleError`."""
        found = secrets.read(self._api, wish)
        if self._platform is None:
            self._platform = KubernetesPlatform(self._api, wish)
        self._platform.wish = wish
        if self._controller is None or found != self._secrets:
            saved = self._remembered(wish) if self._controller is None else self._controller.saved()
            access = Access(found.password, None, found.context(), NODE_SECONDS)
            self._controller = Controller(self._platform, access, saved)
            was = self._secrets.password if self._secrets is not None else None
            if was is not None and was not in self._older:
                self._older = [was, *self._older][:_OLDER]
            self._secrets, self._spread = found, False
        return self._controller

    def _changed(self, wish: Wish) -> list[str]:
        """Fields that may not: nobody may have refused it before, and what runs knows how it was."""
        if wish.generation == self._generation:
            return []
        return (self._platform or KubernetesPlatform(self._api, wish)).unlike(wish)

    def _remembered(self, wish: Wish) -> Any:
        found = owned.look(self._api, CONFIG_MAPS, wish, f"{wish.name}-load")
        if found is None:
            return None
        self._saved = (found.get("data") or {}).get("load.json")
        try:
            return json.loads(self._saved or "null")
        except ValueError:
            return {"damaged": True}  # the controller tells that it cannot use it

    def _upkeep(self, wish: Wish) -> None:
        """What is beside the pods is as it should be; a new password is everywhere."""
        assert self._platform is not None
        assert self._secrets is not None
        if self._passed(self._saved_at, SAVE_SECONDS) or wish.generation != self._generation:
            self._generation = wish.generation
            self._spread = False
            try:
                self._platform.repair()
            except KubernetesError as error:
                if error.code not in _REFUSED:
                    raise
                self._refused(wish, str(error))
            else:
                self._refusal = None
        if not self._spread and self._secrets.password is not None:
            access = Access(None, None, self._secrets.context(), NODE_SECONDS)
            wrong = passwords.spread(self._platform.members(), self._secrets, self._older, access)
            self._spread = not wrong
            for line in wrong:
                _log.info("%s/%s: the password is not told yet: %s", wish.namespace, wish.name, line)

    def _refused(self, wish: Wish, said: str) -> None:
        """Something that a pod or a service may not have: what runs goes on as it is."""
        if said != self._refusal:
            self._post(wish, Happened("Refused", said, warning=True))
        self._refusal = said

    def _passed(self, since: float, pause: float) -> bool:
        """A clock that was set back holds nothing up."""
        return not 0 <= self._clock() - since < pause

    def _save(self, wish: Wish, controller: Controller, at_once: bool) -> None:
        """at_once: a number of shards was decided on, and whoever goes on is to know it."""
        if not at_once and not self._passed(self._saved_at, SAVE_SECONDS):
            return
        self._saved_at = self._clock()
        saved = json.dumps(controller.saved(), sort_keys=True)
        if saved != self._saved:
            try:
                owned.apply(self._api, CONFIG_MAPS, wish, manifests.baseline(wish, saved))
            except KubernetesError as error:
                if error.code not in _REFUSED:
                    raise
                self._refused(wish, str(error))
            else:
                self._saved = saved

    def _tell(self, resource: Mapping[str, Any], wish: Wish, done: Status) -> None:
        assert self._platform is not None
        if self._refusal is not None and done.phase in (Phase.STEADY, Phase.UPGRADING):
            done = replace(done, phase=Phase.BLOCKED, reason="Refused", message=self._refusal)
        if self._platform.troubles:
            done = replace(done, message=troubles.told(done.message, self._platform.troubles))
        self.status, self.refused = done, False
        for happened in done.happened:
            self._post(wish, happened)
        before = resource.get("status") or {}
        change = status.change(before, status.told(done, wish, before, self._now()))
        pause = TELL_SECONDS if done.progress is None else TELL_BUSY_SECONDS
        if change and (status.urgent(change, before) or self._passed(self._told_at, pause)):
            self._write(change)

    def _refuse(self, resource: Mapping[str, Any], reason: str, message: str) -> None:
        self.refused = True
        before, generation = resource.get("status") or {}, resource["metadata"].get("generation", 0)
        change = status.change(before, status.refused(reason, message, generation, before, self._now()))
        if change:
            _log.warning("%s/%s: %s: %s", self._namespace, self._name, reason, message)
            self._write(change)

    def _write(self, change: Object) -> None:
        self._told_at = self._clock()
        try:
            self._api.merge(CACHES, self._namespace, self._name, {"status": change}, "status")
        except KubernetesError as error:
            if error.code == 422:  # the definition there is older than we are, and knows some field or phase otherwise
                _log.warning("%s/%s: the status could not be written, is the definition up to date (mmcache operator "
                             "crd --apply)? %s", self._namespace, self._name, error)  # fmt: skip
            elif error.code != 404:  # it was deleted meanwhile
                raise

    def _post(self, wish: Wish, happened: Happened) -> None:
        level = logging.WARNING if happened.warning else logging.INFO
        _log.log(level, "%s/%s: %s: %s", wish.namespace, wish.name, happened.reason, happened.message)
        try:
            events.post(self._api, wish, happened, self._now())
        except KubernetesError as error:  # such as in a namespace that is being deleted
            _log.info("%s/%s: the event could not be written: %s", wish.namespace, wish.name, error)

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(written: str) -> float:
    return datetime.fromisoformat(written).timestamp()
