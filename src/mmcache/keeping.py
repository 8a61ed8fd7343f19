"""`Keeping`: the deciders of a cache as one: what stays, for how long, for whom. Chosen here, asked by `store`."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mmcache import plugins
from mmcache.admission.base import Admission, Admit, Classed, Ranks, Reject, Watchful
from mmcache.forks import QuietLock
from mmcache.model.block import Facts
from mmcache.model.clock import Clock
from mmcache.model.errors import SettingsError
from mmcache.model.event import Event, Failed, RefuseReason
from mmcache.model.key import Key
from mmcache.policies.base import Policy
from mmcache.policies.fair import FairShare
from mmcache.refs.base import References
from mmcache.settings import SlotSettings, Tenant
from mmcache.slots import Slots
from mmcache.ttl.base import Lifetime
from mmcache.ttl.refresh import early, window

_ASKED: dict[str, type] = {"policies": Policy, "admission": Admission, "ttl": Lifetime, "refs": References}


class AtMost(float):
    """Seconds for which a block may stay where its lifetime does not end it before."""

    __slots__ = ()


class LockedLifetime:
    """A lifetime that several threads ask: one after the other."""

    def __init__(self, lifetime: Lifetime) -> None:
        self._lifetime, self._lock = lifetime, QuietLock()
        self.report: Callable[[Event], None] = lambda event: None
        """Told when it raises."""

    def deadline(self, key: Key, facts: Facts, now: float) -> float | None:
        """See `Lifetime.deadline`."""
        with self._lock:
            deadline = self._lifetime.deadline(key, facts, now)
        return None if deadline is None else float(deadline)  # here, where it may raise

    def used(self, key: Key, now: float) -> None:
        """See `Lifetime.used`. Never raises."""
        self._told(self._lifetime.used, key, now)

    def ended(self, key: Key, age: float, stale: bool) -> None:
        """See `Lifetime.ended`. Never raises."""
        self._told(self._lifetime.ended, key, age, stale)

    def _told(self, tell: Callable[..., None], *what: Any) -> None:
        try:
            with self._lock:
                tell(*what)
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; it only misses the news
            self.report(Failed("lifetime", f"it raised {error!r}"))

    def explain(self, modality: str) -> Mapping[str, float | str]:
        """What the lifetime says of blocks of `modality`; empty where it gives no reasons. Never raises."""
        explain = getattr(self._lifetime, "explain", None)
        if explain is None:
            return {}
        try:
            with self._lock:
                return dict(explain(modality))
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
            self.report(Failed("lifetime", f"it raised {error!r}"))
            return {}


@dataclass(frozen=True, slots=True)
class Until:
    """Store it."""

    deadline: float | None
    """Monotonic seconds; None = for ever."""


@dataclass(frozen=True)
class Keeping:
    """Who decides. `grace_seconds`: how long an expired block may be served while it is revalidated."""

    policy: Policy
    admission: Admission
    lifetime: LockedLifetime
    references: References
    early_refresh: float = 0.0
    """XFetch's beta: above 1 refreshes earlier, 0 never."""
    grace_seconds: float = 0.0
    quotas: Mapping[str, int] = field(default_factory=dict)
    victims_of: Callable[[str, float], Iterator[Key]] | None = None

    @staticmethod
    def choose(
        policy: str | Policy,
        admission: str | Admission | None,
        ttl: float | str | Lifetime | None,
        references: str | References,
        tenants: Mapping[str, Tenant] | None,
        early_refresh: float,
        grace_seconds: float,
    ) -> Keeping:
        """From what `Cache` was given: names of plug-ins, or objects. Raises `SettingsError`, `UnknownPluginError`."""
        for name, value in (("stale_while_revalidate", grace_seconds), ("early_refresh", early_refresh)):
            if not (isinstance(value, int | float) and value >= 0.0):
                raise SettingsError(f"{name} is a number, 0 or more, not {value!r}")
        if early_refresh == math.inf:
            raise SettingsError("early_refresh is finite: with infinity every lookup would compute")
        tenants = {} if tenants is None else tenants
        if not isinstance(tenants, Mapping):
            raise SettingsError(f'tenants are like {{"payments": Tenant("critical")}}, not {tenants!r}')
        for name, tenant in tenants.items():
            if not isinstance(tenant, Tenant):
                raise SettingsError(f'tenants are like {{"payments": Tenant("critical")}}, not {name!r}: {tenant!r}')
        judges = _plugged("admission", ("qos" if tenants else "always") if admission is None else admission)
        if isinstance(judges, Classed):
            judges.serve(tenants)
        fair = _fair(policy, tenants) if tenants else None
        return Keeping(
            policy=_plugged("policies", policy) if fair is None else fair,
            admission=judges,
            lifetime=LockedLifetime(_lifetime(ttl)),
            references=_plugged("refs", references),
            early_refresh=early_refresh,
            grace_seconds=grace_seconds,
            quotas={name: t.quota_bytes for name, t in tenants.items() if t.quota_bytes is not None},
            victims_of=None if fair is None else fair.victims_of,
        )

    def judge(
        self, key: Key, facts: Facts, ttl: float | None, now: float, space: Callable[[str], tuple[int, int, int]]
    ) -> Until | RefuseReason:
        """May this block be stored, and until when? `ttl` in seconds overrides the lifetime, unless it is an `AtMost`.

        `space(tenant)`: bytes of memory that it holds, that all hold, and the limit. Raises what plug-ins raise.
        """
        if isinstance(self.admission, Watchful):
            self.admission.space(facts.tenant, *space(facts.tenant))
        verdict = self.admission.judge(key, facts, now)
        if isinstance(verdict, Admit):
            own = self.lifetime.deadline(key, facts, now) if ttl is None or isinstance(ttl, AtMost) else None
            return Until(own if ttl is None else now + ttl if own is None else min(own, now + ttl))
        return verdict.reason if isinstance(verdict, Reject) else RefuseReason.ADMISSION

    def slots(self, wanted: int | SlotSettings | None, tenants: Mapping[str, Tenant], clock: Clock) -> Slots | None:
        """Compute slots that the admission ranks; where it ranks nobody, `qos` does."""
        if wanted is None:
            return None
        settings = wanted if isinstance(wanted, SlotSettings) else SlotSettings(wanted)
        if not isinstance(settings.count, int):
            raise SettingsError(f"compute_slots is a whole number, a SlotSettings or None, not {settings.count!r}")
        ranks = self.admission
        if not isinstance(ranks, Ranks):
            ranks = plugins.load("admission", "qos")()
            ranks.serve(tenants)
        nice = {name: settings.batch_nice for name, tenant in tenants.items() if tenant.service == "batch"}
        return Slots(
            settings.count, ranks, tenants=tenants, nice=nice, clock=clock,
            report=lambda event: self.lifetime.report(event),
        )  # fmt: skip

    def refresh_window(self, cost: float) -> float:
        """Seconds before its deadline from which a block that took `cost` seconds may be refreshed early."""
        return window(cost, self.early_refresh) if 0.0 < cost < math.inf else 0.0

    def due(self, deadline: float | None, cost: float, now: float) -> bool:
        """Whether the caller that found a live block should refresh it: drawn, likelier the nearer its end."""
        if deadline is None or not self.early_refresh:
            return False
        return early(deadline, cost, self.early_refresh, now, random.random())


def _fair(policy: str | Policy, tenants: Mapping[str, Tenant]) -> FairShare:
    """One policy a tenant, so each has its own order; the shares decide between them."""
    if not isinstance(policy, str):
        raise SettingsError("with tenants, give the policy by name: each tenant gets one of its own")
    return FairShare(plugins.load("policies", policy), tenants)


def _plugged(kind: str, choice: Any) -> Any:
    if isinstance(choice, str):
        return plugins.load(kind, choice)()
    asked = _ASKED[kind]
    if isinstance(choice, type):
        raise SettingsError(f"{kind}: give a {asked.__name__} or its name, not the class {choice.__name__} itself")
    if not isinstance(choice, asked):
        raise SettingsError(f"{kind}: {choice!r} has not the methods of a {asked.__name__}")
    return choice


def _lifetime(ttl: float | str | Lifetime | None) -> Any:
    return plugins.load("ttl", "fixed")(ttl) if ttl is None or isinstance(ttl, int | float) else _plugged("ttl", ttl)
