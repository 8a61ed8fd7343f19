"""The shared tier: frames on a Valkey or Redis server (one for now), with deadlines that its clock cannot harm."""

from mmcache.tiers.valkey.tier import ValkeyTier

__all__ = ["ValkeyTier"]
