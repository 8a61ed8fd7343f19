"""What a connector did, for vLLM's log and its Prometheus endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm.distributed.ec_transfer.ec_connector.metrics import ECConnectorPromMetrics, ECConnectorStats

NAMES: Mapping[str, str] = {
    "hits": "Encoder outputs that were loaded instead of computed.",
    "misses": "Encoder inputs that had to be encoded.",
    "refused": "Stored outputs that were not what was expected of them (shape, dtype, sizes).",
    "failed": "Lookups and writes that failed.",
    "stored": "Encoder outputs that were stored.",
    "dropped": "Encoder outputs that were not stored because too many waited.",
    "private": "Inputs without an identity, which were encoded and not stored.",
    "loaded_bytes": "Bytes handed to the worker.",
}


class MMCacheStats(ECConnectorStats):  # type: ignore[misc]
    """Counts since they were last asked for."""

    def add(self, name: str, count: int = 1) -> None:
        """One of `NAMES`."""
        self.data[name] = self.data.get(name, 0) + count

    def reset(self) -> None:
        """All zero."""
        self.data: dict[str, Any] = {}

    def aggregate(self, other: ECConnectorStats) -> MMCacheStats:
        """The sum of two."""
        for name, count in other.data.items():
            self.add(name, count)
        return self

    def reduce(self) -> dict[str, int | float]:
        """As they are."""
        return dict(self.data)

    def is_empty(self) -> bool:
        """Whether nothing happened."""
        return not any(self.data.values())

    def taken(self) -> MMCacheStats | None:
        """What happened since the last call; None = nothing."""
        if self.is_empty():
            return None
        found = MMCacheStats(data=self.data)
        self.data = {}
        return found


class MMCacheMetrics(ECConnectorPromMetrics):  # type: ignore[misc]
    """One counter each, `vllm:mmcache_NAME_total`, for each engine."""

    def __init__(self, config: Any, kinds: Any, labels: Sequence[str], engines: Mapping[int, Sequence[object]]) -> None:
        super().__init__(config, kinds, list(labels), engines)
        self._counters = {}
        for name, words in NAMES.items():
            counter = self._counter_cls(name=f"vllm:mmcache_{name}", documentation=words, labelnames=list(labels))
            self._counters[name] = {engine: counter.labels(*values) for engine, values in engines.items()}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Add them up."""
        for name, count in transfer_stats_data.items():
            if name in self._counters and engine_idx in self._counters[name]:
                self._counters[name][engine_idx].inc(count)
