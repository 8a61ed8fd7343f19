"""The counters as text, for whoever scrapes them: Prometheus' text format 0.0.4, and OpenMetrics 1.0 with exemplars.

Needs no package. Names of families are those of docs/reference/telemetry.md in Prometheus' spelling.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from mmcache.cache import Cache
from mmcache.ledger import Labels
from mmcache.telemetry.counts import counts_of, durations, together
from mmcache.telemetry.histograms import Buckets, Exemplar
from mmcache.telemetry.names import BOUNDS, METRICS, Metric

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
_HOSTILE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, ends of lines but for the one that has an escape, and surrogates, which are no UTF-8."""


def wanted(accept: str) -> bool:
    """Whether who sent this `Accept` header takes OpenMetrics."""
    return "application/openmetrics-text" in accept.lower()


def render(caches: Cache | Iterable[Cache], openmetrics: bool = False) -> bytes:
    """All metrics of `caches`, added up, as one text. Its content type is `OPENMETRICS` or `PLAIN`."""
    counts = [counts_of(cache) for cache in ([caches] if isinstance(caches, Cache) else caches)]
    values, histograms = together(one.collect() for one in counts), durations(counts)
    lines = []
    for metric in METRICS.values():
        if metric.kind == "histogram":
            found = histograms[metric.name]
            samples = [
                line for labels in sorted(found) for line in _buckets(metric, labels, found[labels], openmetrics)
            ]
        else:
            samples = list(_samples(metric, values.get(metric.name, {})))
        lines += [*_head(metric, openmetrics), *samples]
    return "\n".join([*lines, "# EOF"] if openmetrics else lines).encode() + b"\n"


def _head(metric: Metric, openmetrics: bool) -> Iterator[str]:
    family = metric.prometheus
    if not openmetrics and metric.kind == "counter":
        family += "_total"
    yield f"# HELP {family} {_escaped(metric.help) if openmetrics else metric.help}"
    yield f"# TYPE {family} {metric.kind}"
    if openmetrics and metric.prometheus_unit:
        yield f"# UNIT {family} {metric.prometheus_unit}"


def _samples(metric: Metric, values: dict[Labels, float]) -> Iterator[str]:
    name = metric.prometheus + ("_total" if metric.kind == "counter" else "")
    written: dict[str, float] = {}
    for labels in sorted(values):
        text = _labels(zip(metric.labels, labels, strict=True))
        written[text] = written.get(text, 0) + values[labels]  # two hostile values may be written alike
    for text, value in written.items():
        yield f"{name}{text} {_number(value)}"


def _buckets(metric: Metric, labels: Labels, found: Buckets, openmetrics: bool) -> Iterator[str]:
    named, name, total = list(zip(metric.labels, labels, strict=True)), metric.prometheus, 0
    for bound, count, exemplar in zip((*BOUNDS, math.inf), found.counts, found.exemplars, strict=True):
        total += count
        line = f"{name}_bucket{_labels([*named, ('le', _number(float(bound)))])} {total}"
        yield line + (_exemplar(exemplar) if openmetrics and exemplar is not None else "")
    yield f"{name}_sum{_labels(named)} {_number(found.sum)}"
    yield f"{name}_count{_labels(named)} {total}"


def _exemplar(found: Exemplar) -> str:
    return f' # {{trace_id="{found.trace}",span_id="{found.span}"}} {_number(found.value)} {found.when:.3f}'


def _labels(named: Iterable[tuple[str, str]]) -> str:
    """A label without a value is the same as none."""
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in named if value)
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    value = _HOSTILE.sub("\N{REPLACEMENT CHARACTER}", value)
    return "".join(_ESCAPES.get(character, character) for character in value)


def _number(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    return str(value) if isinstance(value, int) else repr(float(value))
