"""The local disk tier: segment files and an LMDB index, shared by the processes of a machine."""

from mmcache.tiers.disk.audit import EraseReport, VerifyReport
from mmcache.tiers.disk.tier import DiskTier

__all__ = ["DiskTier", "EraseReport", "VerifyReport"]
