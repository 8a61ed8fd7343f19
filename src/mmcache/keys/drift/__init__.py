"""Keys that do not move with running statistics, and a watch over the features that they are made of."""

from mmcache.keys.drift.base import DriftAlarm, DriftSettings, StreamStatus
from mmcache.keys.drift.monitor import DriftMonitor
from mmcache.keys.drift.quantised import QuantisedKey
from mmcache.keys.drift.statistics import FrozenStatistics
from mmcache.keys.drift.trace import Trace, TraceLog, digest_tokens
from mmcache.keys.drift.watch import DriftWatch

__all__ = [
    "DriftAlarm", "DriftMonitor", "DriftSettings", "DriftWatch", "FrozenStatistics", "QuantisedKey", "StreamStatus",
    "Trace", "TraceLog", "digest_tokens",
]  # fmt: skip
