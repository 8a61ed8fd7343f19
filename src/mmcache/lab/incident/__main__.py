"""Write a generated night into a store for the dashboard: `python -m mmcache.lab.incident --store night.duckdb`.

Or rehearse it with real processes in front of a real dashboard: `--rehearse`, and `--screenshots DIR` for pictures.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mmcache.dashboard.store import Store
from mmcache.lab.incident.levels import points
from mmcache.lab.incident.spans import Night
from mmcache.settings import DashboardSettings, parse_bytes


def fill(store: Store, night: Night) -> int:
    """All spans and points of a night; returns how many spans. Done when they are on the disk."""
    count, waiting = 0, []
    for chunk in night.chunks():
        waiting.append(store.put(chunk))
        count += len(chunk)
        while len(waiting) > 1:
            waiting.pop(0).result()
    levels = list(points(night))
    waiting += [store.put(points=levels[at : at + 20_000]) for at in range(0, len(levels), 20_000)]
    for one in waiting:
        one.result()
    return count


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m mmcache.lab.incident", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--store", help="a DuckDB file, for `mmcache dashboard --store`")
    what.add_argument("--rehearse", action="store_true", help="with real processes; the dashboard stays until Ctrl-C")
    what.add_argument("--screenshots", type=Path, metavar="DIR", help="rehearse, and put pictures of the page there")
    parser.add_argument("--spans", type=int, default=200_000)
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", default="4GiB")
    parser.add_argument("--midnight", type=float, help="Unix seconds; default: the last midnight, UTC")
    options = parser.parse_args(argv)
    if options.store is None:
        from mmcache.lab.incident.perform import perform

        perform(options.screenshots)
        return 0
    midnight = options.midnight if options.midnight is not None else time.time() // 86400 * 86400
    store = Store(DashboardSettings(options.store, limit_bytes=parse_bytes(options.limit), queue_spans=10**9))
    try:
        count = fill(store, Night(midnight, options.spans, options.hours, options.seed))
        print(f"{count} generated spans from {midnight:.0f} on in {options.store}", file=sys.stderr)
    finally:
        store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
