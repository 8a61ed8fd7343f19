"""`mmcache demo`: real encoders over a realistic stream; without a cache, with one, and after a restart."""

from mmcache.lab.demo.run import run

__all__ = ["run"]
