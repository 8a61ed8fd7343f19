"""The frame of `benchmarks/`: every script there ends in `main(Table())`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mmcache.lab.measure import busy, machine
from mmcache.lab.report import screen, write
from mmcache.lab.table import Progress, Result, Table, silent
from mmcache.model.errors import MMCacheError


def run(table: Table, quick: bool, seeds: Sequence[int] = (), progress: Progress = silent) -> Result:
    """Run `table` with its own seeds unless some are given; the machine, and whether it was busy, is named as real."""
    chosen = tuple(seeds) or (table.default_seeds[:1] if quick else table.default_seeds)
    where = (machine(), *busy())
    result = table.run(quick, chosen, progress)
    return replace(result, real=(*result.real, *where))


def progress_line(what: str, done: int, total: int) -> None:
    """A `Progress` for a terminal: one line on stderr, rewritten in place."""
    end = "\n" if done >= total else ""
    print(f"\r\x1b[K{what[:60]} {done}/{total}", end=end, file=sys.stderr, flush=True)


def main(table: Table, argv: Sequence[str] | None = None) -> int:
    """The command line of one benchmark; 0 = ran, 1 = missed a target (`--strict`), 3 = could not run."""
    parser = argparse.ArgumentParser(description=table.title)
    parser.add_argument("--quick", action="store_true", help="smaller input, within a minute")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--seeds", type=int, nargs="+", default=[], help="seeds of the random input")
    parser.add_argument("--out", type=Path, help="also write NAME.json, .md and .svg into this folder")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    options = parser.parse_args(argv)
    watched = sys.stderr.isatty() and not options.json
    try:
        result = run(table, options.quick, options.seeds, progress_line if watched else silent)
    except MMCacheError as error:
        print(f"{table.name}: {error}", file=sys.stderr)
        return 3
    if options.json:
        print(json.dumps(result.as_json(), ensure_ascii=False))
    else:
        from rich.console import Console

        Console().print(screen(table, result))
    if options.out is not None:
        paths = write(table, result, options.out)
        print(f"wrote {', '.join(path.name for path in paths)} into {options.out}", file=sys.stderr)
    return int(options.strict and not result.met)
