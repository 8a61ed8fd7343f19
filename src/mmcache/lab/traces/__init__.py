"""Request traces to replay: published ones, synthetic ones, and a user's own access log."""

from mmcache.lab.traces.trace import Trace

__all__ = ["Trace"]
