"""What a load came to, in figures: for people, for programs, and for the table `scale`."""

from __future__ import annotations

from typing import Any

import msgspec

from mmcache.lab.load.counts import Counts
from mmcache.lab.load.crowd import Outcome
from mmcache.lab.load.job import Job

BUSY = 0.9
"""Of a core, from which on a process of the load is a limit itself."""
FEW = 0.01
"""Of the requests."""


def summary(job: Job, outcome: Outcome) -> dict[str, Any]:
    """Plain data; times in milliseconds."""
    counts, seconds = outcome.counts, max(1e-9, outcome.seconds)
    checked = outcome.checked
    return {
        "seconds": round(seconds, 2),
        "asked_qps": round(job.qps * job.shape.mean(seconds), 1),
        "qps": round(counts.requests / seconds, 1),
        "hit_ratio": counts.hit_share,
        **times(counts),
        "megabytes_a_second": round((counts.bytes_read + counts.bytes_written) / seconds / 1e6, 2),
        "reads": counts.reads,
        "writes": counts.writes,
        "missed": counts.missed,
        "refused": counts.refused,
        "failed": counts.failed,
        "unasked": outcome.unasked,
        "wrong": counts.wrong + (checked.wrong if checked else 0),
        "lost": len(outcome.lost),
        "returned": outcome.returned,
        "checked": None if checked is None else msgspec.to_builtins(checked),
        "longest_silence_seconds": round(outcome.longest_silence, 3),
        "processor_shares": [round(share, 2) for share in outcome.processor_shares],
        "limit": limit(outcome),
    }


def times(counts: Counts) -> dict[str, float | None]:
    """From when a request was to come to its answer."""
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    return {name: _ms(counts.percentile(share)) for name, share in shares.items()}


def limit(outcome: Outcome) -> str:
    """Why not all came that was asked for; empty where it did, but for what was due when it was ended."""
    if outcome.unasked <= FEW * outcome.counts.requests:
        return ""
    if max(outcome.processor_shares) >= BUSY:
        return "the generator: its processes were busy; give it more --processes"
    return "the servers, the network, or the machine's cores: the generator waited for them"


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)
