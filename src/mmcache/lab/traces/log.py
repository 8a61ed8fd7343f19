"""A user's own access log → a trace. CSV with a header, or JSON lines; plain, gzip, xz or bzip2.

Columns, by any of these names, in any order and case; others are ignored, and only the key is needed:

* key: `key`, `id`, `object`, `object_id`, `hash`, `url`, `path`
* time: `time`, `timestamp`, `ts`, `date`, `datetime`; ISO 8601 (without a zone: UTC) or Unix time in s, ms, µs or ns
* bytes: `bytes`, `size`, `length`, `content_length`, `nbytes`
* cost: `cost`, `seconds`, `duration`, `latency`, `compute`, in seconds; with `_ms` at the end in milliseconds
* tenant: `tenant`, `customer`, `account`, `user`, `namespace`
* modality: `modality`, `type`, `kind`, `media`

A block is a key of a tenant. It gets the largest of its sizes and the mean of its costs; a cell may be empty where
that request did not tell (a hit has no cost). What no row tells is assumed, and `Trace.notes` says so.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import IO, Any

from mmcache.lab.table import Progress, silent
from mmcache.lab.traces.rows import Rows
from mmcache.lab.traces.trace import Trace
from mmcache.model.errors import InvalidInputError

COLUMNS: dict[str, tuple[str, ...]] = {
    "key": ("key", "id", "object", "object_id", "hash", "url", "path"),
    "time": ("time", "timestamp", "ts", "date", "datetime"),
    "bytes": ("bytes", "size", "length", "content_length", "nbytes"),
    "cost": ("cost", "seconds", "duration", "latency", "compute"),
    "tenant": ("tenant", "customer", "account", "user", "namespace"),
    "modality": ("modality", "type", "kind", "media"),
}
LARGEST_BYTES = 1 << 40
"""A larger block is a mistake; so the sums over a log stay exact."""
LONGEST_LINE = 1 << 20
"""Characters; longer ones are no row of a log."""
_OPEN: dict[str, Callable[..., IO[bytes]]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}  # type: ignore[dict-item]
_REPORTED = 20_000
"""Rows between two calls of `progress`."""


class RowError(ValueError):
    """A row cannot be used, and why; becomes an `InvalidInputError` with file and line."""


def read_log(path: Path, *, skip_bad: bool = False, progress: Progress = silent) -> Trace:
    """The trace in `path`. `skip_bad`: leave rows out that cannot be used, instead of failing at the first.

    Raises `InvalidInputError`, with the line, for a file without a key column, a row that cannot be used, or no rows.
    """
    rows, skipped = Rows(), 0
    unit = _Unit()
    try:
        with path.open("rb") as raw:
            total = path.stat().st_size
            opened = _OPEN.get(path.suffix.lower())
            with opened(raw) if opened else raw as stream:
                for number, row in _rows(path, _lines(stream)):
                    if not number % _REPORTED:
                        progress(f"reading {path.name}", min(raw.tell(), total), total)
                    try:
                        if isinstance(row, RowError):
                            raise row
                        _take(rows, row, unit)
                    except RowError as error:
                        if not skip_bad:
                            raise InvalidInputError(
                                f"{path}, line {number}: {error}; mend it, or leave such rows out with --skip-bad"
                            ) from error
                        skipped += 1
            progress(f"reading {path.name}", total, total)
    except (lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the file system; bzip2 and gzip raise theirs without a number
        raise InvalidInputError(f"{path} is cut short or no {path.suffix} file: {error}") from error
    if not rows.keys:
        raise InvalidInputError(f"{path} has no usable row below its header")
    return rows.trace(path.name, skipped)


def _lines(stream: IO[bytes]) -> Iterator[str]:
    first = True
    while data := stream.readline(LONGEST_LINE):
        line = data.decode("utf-8", errors="replace")
        yield line.removeprefix("\ufeff") if first else line
        first = False


def _rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, Mapping[str, Any] | RowError]]:
    """(line number, row by our names of the columns), or what is wrong with the row."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            reader = _json_rows if line.lstrip().startswith("{") else _csv_rows
            yield from reader(path, number, line, lines)


def _csv_rows(
    path: Path, number: int, header_line: str, lines: Iterator[str]
) -> Iterator[tuple[int, Mapping[str, Any] | RowError]]:
    delimiter = max(",;\t", key=header_line.count)
    header = next(csv.reader([header_line], delimiter=delimiter))
    places = {ours: header.index(theirs) for theirs, ours in _named(path, header).items()}
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield number + reader.line_num, RowError(f"not CSV: {error}")
            continue
        if cells is None:
            return
        if len(cells) >= len(header):
            yield number + reader.line_num, {ours: cells[place] for ours, place in places.items()}
        elif cells:
            yield number + reader.line_num, RowError(f"{len(cells)} cells under a header of {len(header)}")


def _json_rows(
    path: Path, number: int, first: str, lines: Iterator[str]
) -> Iterator[tuple[int, Mapping[str, Any] | RowError]]:
    seen: dict[str, None] = {}  # names so far, in order: rows need not all have the same
    names: dict[str, str] = {}
    for place, line in enumerate(chain([first], lines), number):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield place, RowError(f"not JSON: {error}")
            continue
        if not isinstance(found, dict):
            yield place, RowError("not a JSON object")
            continue
        if not found.keys() <= seen.keys():
            seen |= dict.fromkeys(found)
            names = _named(path, list(seen))
        yield place, {ours: found[theirs] for theirs, ours in names.items() if theirs in found}


def _named(path: Path, header: Sequence[str]) -> dict[str, str]:
    """Their name of a column → ours (`cost_ms` for a cost in milliseconds). Raises `InvalidInputError`: no key."""
    plain = {theirs.strip().lower().replace("-", "_").replace(" ", "_"): theirs for theirs in reversed(header)}
    chosen: dict[str, str] = {}
    for ours, names in COLUMNS.items():  # of several that fit, the first by our order of names
        for name in names:
            known = {name: ours}
            if ours == "cost":
                known |= {f"{name}_seconds": ours, f"{name}_s": ours, f"{name}_ms": "cost_ms"}
            if fitting := [word for word in known if word in plain]:
                chosen[plain[fitting[0]]] = known[fitting[0]]
                break
    if "key" not in chosen.values():
        raise InvalidInputError(
            f"{path} has no column for the key ({', '.join(COLUMNS['key'])}); its header is {', '.join(header)[:200]}"
        )
    return chosen


def _take(rows: Rows, row: Mapping[str, Any], unit: _Unit) -> None:
    key = row.get("key")
    if key is None or key == "" or isinstance(key, dict | list):
        raise RowError("it has no key")
    tenant = _text(row.get("tenant") or "default")
    moment = unit.seconds(row["time"]) if "time" in row else unit.none()
    size = _number(row.get("bytes"), "bytes", LARGEST_BYTES)
    cost = _number(row["cost_ms"], "cost_ms") / 1e3 if "cost_ms" in row else _number(row.get("cost"), "cost")
    block = rows.blocks.setdefault((tenant, _text(key)), len(rows.blocks))
    if block == len(rows.tenants):
        rows.tenants.append(tenant)
        rows.modalities.append("")
    if row.get("modality"):
        rows.modalities[block] = _text(row["modality"]).lower()
    rows.keys.append(block)
    rows.times.append(moment)
    rows.bytes.append(-1 if math.isnan(size) else int(size))
    rows.costs.append(cost)


def _text(cell: Any) -> str:
    """A cell as text that can be printed: half a surrogate pair, which JSON may hold, is written out as `\\ud800`."""
    return str(cell).encode("utf-8", "backslashreplace").decode()


def _number(cell: Any, name: str, most: float = 2.0**62) -> float:
    """Not a number where the cell is empty. Raises `RowError`."""
    if cell is None or cell == "" or cell == "-":
        return math.nan
    try:
        found = float(cell)
    except (TypeError, ValueError, OverflowError) as error:
        raise RowError(f"{name} is not a number: {cell!r:.60}") from error
    if not 0 <= found <= most:
        raise RowError(f"{name} must be finite, 0 or more, and not above {most:.3g}, not {cell!r:.60}")
    return found


class _Unit:
    """How a file writes times: decided by its first row."""

    def __init__(self) -> None:
        self._scale: float | None = None
        self._told = self._untold = False

    def none(self) -> float:
        """Not a number, for a row without a time. Raises `RowError` where earlier ones had one."""
        if self._told:
            raise RowError("it has no time, though others have")
        self._untold = True
        return math.nan

    def seconds(self, cell: Any) -> float:
        """Unix seconds. Raises `RowError`."""
        if self._untold:
            raise RowError("it has a time, though earlier ones have none")
        self._told = True
        try:
            moment = float(cell)
        except OverflowError as error:
            raise RowError(f"the time is too large: {cell!r:.60}") from error
        except (TypeError, ValueError):
            try:
                parsed = datetime.fromisoformat(str(cell).strip())
            except ValueError as error:
                raise RowError(f"the time is neither ISO 8601 nor Unix time: {cell!r:.60}") from error
            return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        if not math.isfinite(moment):
            raise RowError(f"the time is not finite: {cell!r:.60}")
        if self._scale is None:
            self._scale = next(
                (scale for least, scale in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)) if moment > least), 1.0
            )
        return moment / self._scale
