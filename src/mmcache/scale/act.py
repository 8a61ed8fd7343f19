"""One step is done. Cut off anywhere and done again, it comes to the same end."""

from __future__ import annotations

from collections.abc import Callable

from mmcache.scale import handover, joining, resharding, settling
from mmcache.scale.access import Access
from mmcache.scale.observed import Observed
from mmcache.scale.platform import Platform
from mmcache.scale.present import Present
from mmcache.scale.steps import (
    Assign,
    Failover,
    Forget,
    Meet,
    MoveSlots,
    Replace,
    Replicate,
    Settle,
    StartShard,
    Step,
    StopShard,
)


def act(
    step: Step, seen: Observed, platform: Platform, access: Access, cancelled: Callable[[], bool] = lambda: False
) -> None:
    """Do it.

    seen: the look that it was planned by. A node that is another one by now is not touched. cancelled: is asked between
    batches and while waiting; where it says yes, what is begun is settled first. Raises `ScaleError`, after which
    everything is to be looked at again.
    """
    if isinstance(step, StartShard):
        platform.start_shard(step.shard, step.members)
        return
    if isinstance(step, StopShard):
        platform.stop_shard(step.shard, step.keep)
        return
    with Present(seen, access) as present:
        match step:
            case Replace():
                platform.replace(present.member(step.member))
            case Meet():
                joining.meet(step, present, cancelled)
            case Assign():
                joining.assign(step, present)
            case Replicate():
                joining.replicate(step, present)
            case Failover():
                handover.failover(step, present, cancelled)
            case Forget():
                joining.forget(step, present)
            case Settle():
                settling.settle(step, present, cancelled)
            case MoveSlots():
                resharding.move(step, present, cancelled)
