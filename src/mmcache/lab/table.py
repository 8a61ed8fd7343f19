"""`Table`: one file a table. A table runs the real code on real input and returns rows of figures.

To add one: subclass `Table` in `lab/table_NAME.py`, name the class in `pyproject.toml` under the entry points
`mmcache.lab`, and run it with `mmcache lab run NAME`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Better = Literal["higher", "lower"]

Progress = Callable[[str, int, int], None]
"""`progress(what, done, total)`: shown as a bar where somebody watches."""

Spread = tuple[float, float]
"""The 10th and the 90th percentile."""


def silent(what: str, done: int, total: int) -> None:
    """A `Progress` that shows nothing."""


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0…1) of `values` lies, linearly interpolated."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@dataclass(frozen=True)
class Row:
    """One figure of ours beside its target and the published one."""

    id: str
    """Stable and unique in its table, e.g. `hit/1-thread/cachebox`."""
    metric: str
    """What is measured, in words."""
    unit: str
    """`ns`, `MB/s`, `%`, `x` (a ratio)…"""
    better: Better
    ours: float | None
    """The median; None where it could not be measured here."""
    spread: Spread | None = None
    target: float | None = None
    """What `ours` must reach; None where the row is only shown, e.g. a peer's figure."""
    published: float | None = None
    """The published figure, which is a target to beat and never a constant to print as ours."""

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without a target or without a figure."""
        if self.target is None or self.ours is None:
            return None
        return self.ours >= self.target if self.better == "higher" else self.ours <= self.target

    @property
    def shortfall(self) -> float | None:
        """By what share of the target it is missed (0.1 = 10 %); None where `met` is not False."""
        if self.met is not False or self.target is None or self.ours is None:
            return None
        return abs(self.ours - self.target) / abs(self.target) if self.target else abs(self.ours)

    @staticmethod
    def of(
        id: str,
        metric: str,
        unit: str,
        better: Better,
        values: float | Sequence[float],
        *,
        target: float | None = None,
        published: float | None = None,
    ) -> Row:
        """A row from one figure, or from repeated ones: their median and 10th–90th percentile."""
        samples = [float(values)] if isinstance(values, int | float) else [float(value) for value in values]
        if not samples or not all(map(isfinite, samples)):
            raise ValueError(f"row {id!r} needs finite figures, got {samples}")
        spread = (percentile(samples, 0.1), percentile(samples, 0.9)) if len(samples) > 1 else None
        return Row(id, metric, unit, better, percentile(samples, 0.5), spread, target, published)

    def as_json(self) -> dict[str, Any]:
        """`{id, metric, unit, better, published, target, ours, spread, met}`."""
        return {
            "id": self.id,
            "metric": self.metric,
            "unit": self.unit,
            "better": self.better,
            "published": self.published,
            "target": self.target,
            "ours": self.ours,
            "spread": list(self.spread) if self.spread else None,
            "met": self.met,
        }


@dataclass(frozen=True)
class Result:
    """What a table found, and what of it was real."""

    name: str
    quick: bool
    seeds: tuple[int, ...]
    real: tuple[str, ...]
    """What really ran, a line each: code, models, data, machine."""
    simulated: tuple[str, ...]
    """What was imitated, a line each; empty = nothing."""
    rows: tuple[Row, ...] = field(default=())

    def __post_init__(self) -> None:
        ids = [row.id for row in self.rows]
        if len(set(ids)) < len(ids):
            raise ValueError(f"table {self.name!r} has two rows of one id: {sorted(ids)}")

    @property
    def met(self) -> bool:
        """Whether every row with a target reached it."""
        return all(row.met is not False for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """`{name, quick, seeds, real, simulated, rows}`."""
        return {
            "name": self.name,
            "quick": self.quick,
            "seeds": list(self.seeds),
            "real": list(self.real),
            "simulated": list(self.simulated),
            "rows": [row.as_json() for row in self.rows],
        }


class Table(ABC):
    """One table: a command that anyone can run again."""

    name: ClassVar[str]
    """As in `mmcache lab run NAME`, and the name of its files under `docs/results`."""
    title: ClassVar[str]
    """One line: the question that it answers."""
    remark: ClassVar[str] = ""
    """What a reader must know beside the figures, above all why a target is missed. Stands in the table's page."""
    default_seeds: ClassVar[tuple[int, ...]] = (0, 1, 2)

    @abstractmethod
    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Measure. `quick` ends within 60 s on two cores, on a smaller input. Raises `MMCacheError`."""

    def pages(self, result: Result) -> Mapping[str, str]:
        """Further files of its results, text by ending: `{"csv": …}` is written as `NAME.csv`. By default none."""
        return {}

    def plot(self, result: Result, figure: Figure) -> None:
        """Draw `result`; by default one panel a unit, a bar a row. Override for a curve."""
        from mmcache.lab.plot import bars

        bars(result, figure)
