"""`mmcache demo`: real encoders over a stream; without a cache, with one, after a restart, and with a prefetcher."""

from mmcache.lab.demo.run import run

__all__ = ["run"]
