"""Members of a cluster as pods: one StatefulSet a shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmcache.model.errors import KubernetesError
from mmcache.operator import gate, manifests, owned, pods, troubles
from mmcache.operator.api import (
    BUDGETS,
    BUDGETS_BEFORE_1_21,
    CONFIG_MAPS,
    PODS,
    SERVICES,
    STATEFUL_SETS,
    Api,
    Object,
)
from mmcache.operator.manifests import Manifest, selector
from mmcache.operator.names import PORT, SHARD, TEMPLATE, pod, stateful_set
from mmcache.operator.resource import Wish
from mmcache.scale.observed import Member, Observed


class KubernetesPlatform:
    """See `mmcache.scale.platform.Platform`. `wish` may be changed between two turns, never within one.

    A pod that died is made again by its StatefulSet; that a container which died in its pod waits before it is back,
    its own script sees to.
    """

    def __init__(self, api: Api, wish: Wish) -> None:
        self._api = api
        self.wish = wish
        self._applied: dict[str, Manifest] = {}
        """By path: what was applied last, so that an unchanged thing is not applied in every turn."""
        self._pods: dict[str, Object] = {}
        """By member's name, as they were listed last."""
        self.troubles: dict[str, str] = {}
        """Of the members that were seen last: why they do not run."""

    def members(self) -> Sequence[Member]:
        """Pods that are there, and those that a StatefulSet is about to make."""
        wish = self.wish
        places = {
            (int(found["metadata"]["labels"][SHARD]), place)
            for found in self._shards()
            for place in range(int(found["spec"].get("replicas", 1)))
            if not found["metadata"].get("deletionTimestamp")
        }
        seen = {
            (number, place): found
            for found in self._api.list(PODS, wish.namespace, selector(wish))
            if (at := _place(wish.name, found)) is not None
            for number, place in [at]
        }
        self.troubles = {
            f"{number}-{place}": trouble
            for (number, place), found in seen.items()
            if (trouble := troubles.of_pod(found)) is not None
        }
        self._pods = {f"{number}-{place}": found for (number, place), found in seen.items()}
        hashes = {number: _template(wish, number) for number in {number for number, _ in places | set(seen)}}
        return [
            _member(number, place, seen.get((number, place)), hashes[number], (number, place) not in places)
            for number, place in sorted(places | set(seen))
        ]

    def start_shard(self, shard: int, members: int) -> None:
        """Services and settings first: the pods need them."""
        self.ensure()
        now = owned.look(self._api, STATEFUL_SETS, self.wish, stateful_set(self.wish.name, shard))
        if now is not None and now["metadata"].get("deletionTimestamp"):
            return  # its name is free once it has gone
        running = 0 if now is None else int(now["spec"].get("replicas", 1))
        owned.apply(self._api, STATEFUL_SETS, self.wish, pods.shard(self.wish, shard, max(members, running)))

    def stop_shard(self, shard: int, keep: int = 0) -> None:
        """From the top place down, as StatefulSets do; the last one takes the StatefulSet with it."""
        wish, name = self.wish, stateful_set(self.wish.name, shard)
        now = owned.look(self._api, STATEFUL_SETS, wish, name)
        if keep == 0:
            if now is not None:
                self._api.delete(STATEFUL_SETS, wish.namespace, name, now["metadata"]["uid"])
        elif now is not None and int(now["spec"].get("replicas", 1)) > keep:
            owned.apply(self._api, STATEFUL_SETS, wish, pods.shard(wish, shard, keep))

    def replace(self, member: Member) -> None:
        """The StatefulSet learns what is wanted, then makes the pod anew. A pod that is new already stays."""
        wish = self.wish
        self.ensure()
        found = self._api.get(PODS, wish.namespace, pod(wish.name, member.shard, member.place))
        if found is None or _place(wish.name, found) is None or found["metadata"].get("deletionTimestamp"):
            return
        if member.host and (found.get("status") or {}).get("podIP", "") != member.host:
            return  # not the one that was meant
        now = owned.look(self._api, STATEFUL_SETS, wish, stateful_set(wish.name, member.shard))
        if now is None or now["metadata"].get("deletionTimestamp"):
            return
        made = pods.shard(wish, member.shard, int(now["spec"].get("replicas", 1)))
        owned.apply(self._api, STATEFUL_SETS, wish, made)
        self._api.delete(PODS, wish.namespace, found["metadata"]["name"], found["metadata"]["uid"])

    def mark(self, seen: Observed, now: str) -> None:
        """Kubernetes is told which pods count: see `gate`. now: RFC 3339."""
        for name, holds in gate.holding(seen).items():
            found = self._pods.get(name)
            if found is None or gate.told(found) is holds:
                continue
            told = found["metadata"]
            try:
                self._api.condition(PODS, self.wish.namespace, told["name"], gate.condition(holds, told["uid"], now))
            except KubernetesError as error:
                if error.code not in (404, 409, 422):  # gone meanwhile, or another one of its name
                    raise

    def ensure(self) -> None:
        """What a cluster has beside its pods; and its shards, so that a pod which Kubernetes makes anew is current."""
        self._keep(SERVICES, manifests.nodes_service(self.wish))
        self._keep(SERVICES, manifests.service(self.wish))
        self._keep(CONFIG_MAPS, manifests.settings(self.wish))
        try:
            self._keep(BUDGETS, manifests.disruption_budget(self.wish))
        except KubernetesError as error:
            if error.code != 404:
                raise
            self._keep(BUDGETS_BEFORE_1_21, manifests.disruption_budget(self.wish, "v1beta1"))

    def repair(self) -> None:
        """What somebody deleted or changed beside the pods is put back: to be called now and then."""
        self._applied.clear()
        self.ensure()
        for found in self._shards():
            if not found["metadata"].get("deletionTimestamp"):
                number = int(found["metadata"]["labels"][SHARD])
                made = pods.shard(self.wish, number, int(found["spec"].get("replicas", 1)))
                owned.apply(self._api, STATEFUL_SETS, self.wish, made)

    def unlike(self, wish: Wish) -> list[str]:
        """Fields of `spec` that cannot change, and would: nodes with and without would not talk to each other."""
        return sorted({field for found in self._shards() for field in pods.unlike(found, wish)})

    def empty(self) -> bool:
        """Nothing of the cluster runs any more."""
        return not self._shards() and not self._api.list(PODS, self.wish.namespace, selector(self.wish))

    def _shards(self) -> list[Object]:
        found = self._api.list(STATEFUL_SETS, self.wish.namespace, selector(self.wish))
        return [one for one in found if owned.is_ours(one, self.wish) and _is_shard(self.wish.name, one["metadata"])]

    def _keep(self, kind: Any, wanted: Manifest) -> None:
        path = kind.path(wanted["metadata"]["namespace"], wanted["metadata"]["name"])
        if self._applied.get(path) != wanted:
            owned.apply(self._api, kind, self.wish, wanted)
            self._applied[path] = wanted


def _template(wish: Wish, number: int) -> str:
    return str(pods.template(wish, number)["metadata"]["labels"][TEMPLATE])


def _is_shard(name: str, told: Mapping[str, Any]) -> bool:
    """Whether metadata are those of a StatefulSet of a cluster of this name."""
    number = str(told["labels"].get(SHARD, ""))
    return number.isdecimal() and bool(told["name"] == stateful_set(name, int(number)))


def _place(name: str, found: Mapping[str, Any]) -> tuple[int, int] | None:
    """Shard and place of a pod; None for one that is none of ours, whatever its labels say."""
    told = found["metadata"]
    number, place = told["labels"].get(SHARD, ""), told["name"].rpartition("-")[2]
    if not (number.isdecimal() and place.isdecimal()) or told["name"] != pod(name, int(number), int(place)):
        return None
    owner = ("StatefulSet", stateful_set(name, int(number)))
    made = any((one["kind"], one.get("name")) == owner for one in told.get("ownerReferences") or ())
    return (int(number), int(place)) if made else None


def _member(
    number: int, place: int, found: Mapping[str, Any] | None, template: str, surplus: bool
) -> Member:  # fmt: skip
    if found is None:
        return Member(number, place)
    told, status = found["metadata"], found.get("status") or {}
    leaving = surplus or bool(told.get("deletionTimestamp")) or status.get("phase") in ("Failed", "Succeeded")
    return Member(
        shard=number,
        place=place,
        host=status.get("podIP") or "",
        port=PORT,
        ready=gate.runs(found) and not leaving,
        leaving=leaving,
        current=(told.get("labels") or {}).get(TEMPLATE) == template,
        machine=(found.get("spec") or {}).get("nodeName") or "",
    )
