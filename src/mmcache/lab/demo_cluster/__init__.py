"""`mmcache demo-cluster`: two hosts' processes share one cache, and one of its nodes dies."""

from mmcache.lab.demo_cluster.run import run

__all__ = ["run"]
