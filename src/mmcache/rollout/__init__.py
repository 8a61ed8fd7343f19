"""Two versions of a model live at once: a share of the traffic tries the new one, then one switch for all processes."""

from mmcache.rollout.rollout import Rollout

__all__ = ["Rollout"]
