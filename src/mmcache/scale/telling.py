"""What a turn of the controller tells: conditions, and what of it is news. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from mmcache.scale.bursts import Load
from mmcache.scale.load import whole
from mmcache.scale.observed import Observed
from mmcache.scale.status import Condition, Happened, Phase, Plan
from mmcache.scale.steps import Step

_GOING_ON = {Phase.CREATING, Phase.SCALING_OUT, Phase.SCALING_IN, Phase.REPAIRING, Phase.UPGRADING, Phase.DRAINING}
_LONGEST = 1000
_SHOWN = 8


def conditions(seen: Observed | None, plan: Plan, load: Load | None, trouble: str | None) -> tuple[Condition, ...]:
    """`Available`, `Progressing`, `Degraded`, `Burst`. trouble: what failed in this turn."""
    nodes = {} if seen is None else seen.nodes
    served = whole(nodes)
    primaries = [node for node in nodes.values() if not node.primary and node.slots]
    fine = served and all(node.cluster_ok for node in primaries)
    available = (
        ("AllSlotsServed", "every slot is served") if fine
        else ("NodesDisagree", "every slot is served, but not all nodes think so") if served
        else ("LookFailed", trouble or "nobody could be asked") if seen is None
        else ("SlotsMissing", "some slots have no primary that answers")
    )  # fmt: skip
    out = [] if seen is None else [one.name for one in seen.members if not one.ready and not one.leaving]
    down = f"not ready: {', '.join(out[:_SHOWN])}{'…' if len(out) > _SHOWN else ''}"
    degraded = (
        ("Failed", trouble) if trouble
        else (plan.reason, plan.message) if plan.phase is Phase.REPAIRING
        else (plan.reason, plan.message) if plan.reason == "ReplicaBesidePrimary"
        else ("MembersDown", down) if out and plan.phase in (Phase.STEADY, Phase.BLOCKED)
        else None
    )  # fmt: skip
    return (
        Condition("Available", fine, *available),
        Condition("Progressing", plan.phase in _GOING_ON, plan.reason, plan.message),
        Condition("Degraded", degraded is not None, *(degraded or ("AsWanted", "nothing is missing"))),
        Condition("Burst", load is not None and load.burst, *_burst(load)),
    )


def _burst(load: Load | None) -> tuple[str, str]:
    if load is None:
        return "Unknown", "nothing is known of the load yet"
    return load.reason, f"{_usual(load)}"


def _usual(load: Load) -> str:
    usual = "what is usual is not known yet" if load.baseline is None else f"{load.baseline:,.1f} are usual now"
    return f"{load.qps:,.1f} requests a second, {usual}"


def burst_news(load: Load, was: bool) -> list[Happened]:
    """When one begins or is over, with the figures."""
    if load.burst == was:
        return []
    return [Happened("BurstBegan" if load.burst else "BurstOver", _usual(load))]


def step_words(step: Step) -> str:
    """Such as `MoveSlots 16 slots, 0-0 to 3-0`."""
    parts = []
    for field in fields(step):
        value = getattr(step, field.name)
        parts.append(f"{field.name} {len(value)}" if isinstance(value, tuple) else f"{field.name} {value}")
    return f"{type(step).__name__}: {', '.join(parts)}"


def failure(error: BaseException, secrets: Sequence[str]) -> str:
    """The error and what caused it, in one line; none of the secrets is in it."""
    words: list[str] = []
    one: BaseException | None = error
    for _ in range(_SHOWN):  # causes may go in a circle
        if one is None:
            break
        text = str(one)
        for secret in secrets:  # before its spaces are touched
            text = text.replace(secret, "***")
        text = " ".join(text.split())
        name = type(one).__name__
        if not words or (text or name) not in words[-1]:
            words.append(f"{name}: {text}" if text else name)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return "; because of ".join(words)[:_LONGEST]
