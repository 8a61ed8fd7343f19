"""Points of metrics: what tiers hold, what they evicted, what was counted. One a series and ten seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from mmcache.dashboard.dictionary import insert
from mmcache.dashboard.values import named, word

PREFIX = "mmcache."
EVERY = 10
MOST_SERIES = 20_000
LABELS = 2_000
"""Characters of a series' labels, as JSON; ours have a handful."""
_CUMULATIVE, _DELTA = 2, 1
_json = msgspec.json.Encoder(order="deterministic")

Series = tuple[str, str, str, str, bool]
"""Name, service, instance, labels as JSON, whether it came as differences."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one series."""

    series: Series
    start: int
    """Unix seconds."""
    value: float


def points_of(request: Any, oldest: float, newest: float) -> tuple[list[Point], int]:
    """Gauges and sums of ours in an `ExportMetricsServiceRequest`, and how many points were refused for their time."""
    found, refused = [], 0
    for service, instance, metric in _metrics(request):
        for kind, data in (("gauge", metric.gauge), ("sum", metric.sum)):
            if not metric.HasField(kind):
                continue
            delta = kind == "sum" and data.aggregation_temporality == _DELTA
            for point in data.data_points:
                value = point.as_double if point.HasField("as_double") else float(point.as_int)
                start = point.time_unix_nano // 1_000_000_000
                if not math.isfinite(value):
                    continue
                if not oldest <= start <= newest:
                    refused += 1
                    continue
                labels = _json.encode({name: word(said) for name, said in named(point.attributes).items()}).decode()
                if len(labels) > LABELS:
                    continue
                found.append(Point((metric.name, service, instance, labels, delta), start, value))
    return found, refused


def _metrics(request: Any) -> Iterator[tuple[str, str, Any]]:
    for group in request.resource_metrics:
        resource = named(group.resource.attributes)
        service, instance = word(resource.get("service.name")), word(resource.get("service.instance.id"))
        for scope in group.scope_metrics:
            for metric in scope.metrics:
                if metric.name.startswith(PREFIX) and len(metric.name) <= 200:
                    yield service, instance, metric


class Points:
    """Which series there are. Only the writer uses it."""

    def __init__(self) -> None:
        self._ids: dict[Series, int] = {}
        self._last: dict[int, tuple[int, float]] = {}
        self._stale = False

    @classmethod
    def read(cls, connection: Any) -> Points:
        """As the store has it."""
        found = cls()
        found._read(connection)
        return found

    def forget(self) -> None:
        """What was written last is not kept."""
        self._stale = True

    def _read(self, connection: Any) -> None:
        rows = connection.execute("SELECT name, service, instance, labels, delta, id FROM series").fetchall()
        self._ids = {(*row[:4], bool(row[4])): row[5] for row in rows}
        last = connection.execute("SELECT series, max(start), arg_max(value, start) FROM points GROUP BY series")
        self._last = {series: (start, value) for series, start, value in last.fetchall()}
        self._stale = False

    def write(self, connection: Any, points: Sequence[Point]) -> None:
        """Within the writer's transaction. Differences are summed up, so that every series counts from its start."""
        if self._stale:
            self._read(connection)
        starts, series, values = [], [], []
        for point in points:
            known = self._ids.get(point.series)
            if known is None:
                if len(self._ids) >= MOST_SERIES:
                    continue
                known = self._ids[point.series] = len(self._ids)
                connection.execute("INSERT INTO series VALUES (?, ?, ?, ?, ?, ?)", [known, *point.series])
            last, total = self._last.get(known, (0, 0.0))
            value = total + point.value if point.series[4] else point.value
            if point.start // EVERY <= last // EVERY:
                if point.series[4]:
                    self._last[known] = (last, value)
                continue
            self._last[known] = (point.start, value)
            starts.append(point.start)
            series.append(known)
            values.append(value)
        if starts:
            columns = {"start": np.array(starts, np.int64), "series": np.array(series, np.uint32)}
            insert(connection, "points", columns | {"value": np.array(values)})
