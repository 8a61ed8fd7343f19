"""What a person on call reads of a cause: what happened, where, since when, and what to do next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mmcache.dashboard.swap import Swap
from mmcache.dashboard.telling import Where, named, pace, percent, place

_NEARLY_ALL = 0.8


@dataclass(frozen=True)
class Facts:
    """What is known of a cause. Pairs: in the baseline, now."""

    where: Where
    share: float
    seconds: tuple[float, float] = (1.0, 1.0)
    """Of the windows; of the second, since it began."""
    lookups: tuple[float, float] = (0.0, 0.0)
    """There, in these."""
    missed: tuple[float, float] = (0.0, 0.0)
    """Shares of the lookups there, in the whole windows."""
    matched: tuple[float, float] = (0.0, 0.0)
    """Those of its own reason."""
    detail: str = ""
    """` (evicted from memory: space)`: those of its examples, escaped."""
    recorded: float = 0.0
    """Lookups that `keys` were counted of."""
    keys: float = 0.0
    """Different ones among them."""
    heir_of: str = ""
    """The process that the one there took the place of, in the time that is compared."""
    swap: Swap | None = None
    others: bool = False
    """Other causes were found."""

    @property
    def at(self) -> str:
        """` at instance b, route /c`, or ` everywhere`."""
        return f" at {place(self.where)}" if self.where else " everywhere"

    @property
    def now_a_second(self) -> float:
        """Lookups there."""
        return self.lookups[1] / self.seconds[1] if self.seconds[1] > 0 else 0.0

    @property
    def paces(self) -> str:
        """`4.5 a second, 24 a minute before`."""
        before, now = (
            count / length if length > 0 else 0.0 for count, length in zip(self.lookups, self.seconds, strict=True)
        )
        return f"{pace(now)}, {pace(before)} before"


def _signature(facts: Facts) -> str:
    swap = facts.swap
    if swap is None or not swap.moved:
        return f"Another signature{facts.at}: see in an example for which one its input is stored."
    said = "; ".join(
        f"{named(one.component)} was {named(one.was) or '(none)'}, is {named(one.now) or '(none)'}"
        for one in swap.moved
        if not one.follows
    )
    return (
        f"Another signature{facts.at}: {said}. If that is meant, the misses end as results are stored anew; if not, "
        "roll it back there."
    )


def _flood(facts: Facts) -> str:
    (old, new), (before, now) = facts.lookups, facts.seconds
    if not old or before <= 0 or now <= 0:
        return _new(facts)
    grown = f"{(new / now) / (old / before):.1f} times as many lookups"
    cold = ", nearly each for another input" if facts.keys > _NEARLY_ALL * facts.recorded > 0 else ""
    return (
        f"A flood{facts.at}: {grown} ({facts.paces}), {percent(facts.missed[1])} of them misses{cold}. "
        "Give a batch a tenant with a quota, or let it bypass the cache."
    )


def _new(facts: Facts) -> str:
    told = f"lookups that were not there before ({pace(facts.now_a_second)}), {percent(facts.missed[1])} of them misses"
    if "instance" in facts.where and "tenant" not in facts.where:
        return (
            f"New processes{facts.at}: {told}. Their memory began empty; a shared tier, or warming them before they "
            "get traffic, spares that."
        )
    return f"New traffic{facts.at}: {told}. What lasts warms up; a batch gets a quota, or bypasses the cache."


def _lull(facts: Facts) -> str:
    return (
        f"Traffic went away{facts.at}: {facts.paces}, of which {percent(1 - facts.missed[0])} hit. "
        "The cache is as good as it was; ask who stopped sending, or whether a process still runs."
    )


def _rest(facts: Facts) -> str:
    if facts.share < 0:
        return "Other lookups hit more than before, which is taken off the fall."
    if not facts.others:
        return "The fall is spread thinly: no reason, process, tenant or route has an outstanding part in it."
    return "The rest, spread thinly."


_REASONS: dict[str, tuple[str, str]] = {
    "absent": (
        "Inputs that nothing is known of",
        "New content, new arguments, invalidated data, or a process that lost its memory in a restart: compare two "
        "examples' keys, and see when it was started.",
    ),
    "expired": ("Blocks past their deadline", "Lifetimes are shorter than the time between two lookups: see `ttl`."),
    "evicted": (
        "Blocks that left for want of room",
        "Give the tier more room, or the tenant a quota, and see who fills it.",
    ),
    "denied": ("Refused", "Check the tenant's rights and the shared tier's user rules."),
    "corrupt": ("Bytes that fail their checksum", "Check that host's disk or memory; run `mmcache verify`."),
    "bypassed": ("Asked for without the cache", "Look for `no-cache`, a switched-off cache, or the net-benefit guard."),
    "abstained": ("Near ones that are not trusted", "Inputs or the error limit changed: see `mmcache semantic`."),
    "timeout": ("A tier was late", "Check the network to the shared tier and its load."),
    "tier-down": ("A tier is not there", "Check that it runs and can be reached from there."),
    "stale-lease": (
        "An invalidation may have been missed",
        "The process lost its change feed; it comes back by itself once the shared tier answers.",
    ),
}
_OWN: dict[str, Callable[[Facts], str]] = {"signature": _signature, "flood": _flood, "lull": _lull, "other": _rest}


def tell(kind: str, facts: Facts) -> str:
    """A cause in a sentence or two. Names that came from outside are escaped."""
    if (own := _OWN.get(kind)) is not None:
        return own(facts)
    what, then = _REASONS.get(kind, (f"Misses of the reason {named(kind)}", "Open an example."))
    before, now = facts.matched
    if kind == "absent" and facts.heir_of:
        then = f"This process took the place of {named(facts.heir_of)}: what only that one's memory held is gone."
    return f"{what}{facts.detail}{facts.at}: {percent(now)} of lookups there, {percent(before)} before. {then}"
