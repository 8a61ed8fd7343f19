"""From a burst to capacity: a cluster that has carried the same load for an hour gets three times as much."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mmcache.lab.scale.stand import FIRST, standing, steady, watching
from mmcache.lab.scale.trial import Extent, Trial, job_for, loaded
from mmcache.lab.table import Progress
from mmcache.model.errors import ScaleError
from mmcache.scale import controller
from mmcache.scale.bursts import BurstDetector
from mmcache.scale.load import Readings
from mmcache.scale.local.files import Told, write
from mmcache.scale.local.handle import Handle
from mmcache.scale.spec import BurstSpec
from mmcache.scale.status import Phase, Status

FACTOR = 3.0
SHARDS = 5
"""That the burst needs."""
_HOUR = 3600.0
_LOOK = 5.0
"""Seconds between the detector's looks in the hour before."""
_LONGEST = 240.0
_POLL = 0.05


def burst(
    name: str, folder: Path, extent: Extent, spec: BurstSpec, after_seconds: float, seed: int, progress: Progress
) -> Trial:
    """One trial. What is usual was learned in an hour of virtual time at the rate that is measured first: the burst and
    all that follows are real. Raises `ScaleError`, `AssetError`."""
    trial = Trial(name)
    threshold = extent.qps * FACTOR / SHARDS / 1000 * 1.05
    wanted: dict[str, Any] = {
        "memory_bytes": extent.memory_bytes, "replicas": extent.replicas, "max_shards": SHARDS,
        "qps_threshold": threshold * 10,
        "burst": {"window_seconds": spec.window_seconds, "quiet_seconds": spec.quiet_seconds},
    }  # fmt: skip
    with standing(folder, wanted) as handle:
        trial.server = next(iter(handle.look().nodes.values())).version
        watch = watching(handle)
        step = extent.calm_seconds
        lead = 4.0 + spec.window_seconds / 4
        job = job_for(handle, extent, seed, starts=(0.0, lead + step), factors=(1.0, FACTOR), reads=0.95, processes=2)
        with loaded(trial, job, watch, progress) as run:
            run.calm(2.0)
            rate = _rate(handle, lead - 3.0)
            _restart(handle, rate, spec, seed)
            # The servers count more than one lookup for a write: the threshold is in their requests.
            generation = handle.change({"qps_threshold": threshold * rate / extent.qps}).generation
            steady(handle, generation)
            began = run.crowd.began or 0.0
            run.calm(max(0.0, began + lead + step - time.monotonic()))
            run.mark("burst", began + lead + step)
            _until(handle, lambda status: status.wanted > FIRST)
            run.mark("noticed")
            first = watch.until(lambda sight: sight.at_new > 0, _LONGEST, "a new shard serves")
            run.mark("first serves", first.at)
            _until(handle, lambda status: status.shards == SHARDS and status.phase is Phase.STEADY)
            run.mark("all serve")
            run.calm(after_seconds)
            run.finish()
    return trial


def _rate(handle: Handle, seconds: float) -> float:
    """Requests a second as the controller counts them. Raises `ScaleError`."""
    readings = Readings()
    readings.take(handle.look().nodes, time.time(), seconds)
    time.sleep(seconds)
    rate = readings.take(handle.look().nodes, time.time(), seconds)
    if rate is None:
        raise ScaleError("the nodes do not say how much they are asked")
    return rate.requests


def _restart(handle: Handle, rate: float, spec: BurstSpec, seed: int) -> None:
    """The supervisor ends, as when it is upgraded, and finds the memory of an hour when it is back."""
    pid = handle.supervisor
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + _LONGEST
        while handle.supervisor == pid and time.monotonic() < end:
            time.sleep(_POLL)
    detector, random, now = BurstDetector(spec), np.random.default_rng(seed), time.time()
    for at in np.arange(now - _HOUR, now, _LOOK):
        detector.observe(float(at), float(random.poisson(rate * _LOOK)) / _LOOK)
    saved = {"version": controller.VERSION, "load": detector.saved(), "wanted": FIRST, "changed_at": now - _HOUR}
    write(handle.files.saved, saved)
    handle.up({})


def _until(handle: Handle, met: Callable[[Status], bool]) -> Status:
    end = time.monotonic() + _LONGEST
    told: Told | None = None
    while time.monotonic() < end:
        told = handle.files.told()
        if told is not None and told.status is not None and met(told.status):
            return told.status
        time.sleep(_POLL)
    raise ScaleError(f"not scaled after {_LONGEST:g} s: {told.status if told else 'nothing was told'}")
