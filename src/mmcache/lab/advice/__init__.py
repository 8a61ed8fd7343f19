"""What would serve a user's own traffic best, found by replaying their access log."""

from mmcache.lab.advice.inquiry import Study, study

__all__ = ["Study", "study"]
