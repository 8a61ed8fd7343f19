"""The shared tier: frames on Valkey or Redis, with single flight of all hosts, and deadlines that no clock harms."""

from mmcache.tiers.valkey.tier import ValkeyTier

__all__ = ["ValkeyTier"]
