"""Table `policies` on a user's own access log: every policy and size of memory, every lifetime, with their curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mmcache.lab.advice.inquiry import Study, study
from mmcache.lab.advice.words import config, headline, lived, sentences, size
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.lab.traces import Trace
from mmcache.lab.traces.log import read_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUICK_REQUESTS = 20_000


class LogTable(Table):
    """What each policy would have saved on one log."""

    name: ClassVar[str] = "policies-log"
    title: ClassVar[str] = "Policies on your log: what each would save, in how much memory, and for how long"
    remark: ClassVar[str] = "`mmcache advise LOG` puts this in one page, with a configuration file."
    default_seeds: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self, path: Path, *, skip_bad: bool = False, found: Study | None = None) -> None:
        """`found`: a study of that log, where there is one already."""
        self._path, self._skip_bad, self._study = path, skip_bad, found

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Nothing is random, so `seeds` change nothing. Raises `InvalidInputError` for a log that cannot be used."""
        if self._study is None:
            trace = read_log(self._path, skip_bad=self._skip_bad, progress=progress)
            self._study = study(_first(trace, quick), progress=progress)
        found = self._study
        rows = [
            *(
                Row.of(
                    f"{name}/{_memory(point.memory)}", f"compute saved; {point.hit_ratio:.1%} of requests hit", "%",
                    "higher", 100 * point.saved,
                )
                for name, points in found.curves.items()
                for point in points
            ),
            *(
                Row.of(
                    f"ttl/{lived(point.ttl).replace(' ', '')}",
                    f"compute saved by {found.policy} in {size(found.memory)}; {point.hit_ratio:.1%} of requests hit, "
                    f"19 of 20 hits younger than {point.old_age:.3g} s", "%", "higher", 100 * point.saved,
                )
                for point in found.lifetimes
            ),
        ]  # fmt: skip
        advice = (f"advised: {headline(found)}", *sentences(found))
        return Result(self.name, quick, tuple(seeds), (*advice, "policies as the cache uses them"), (), tuple(rows))

    def pages(self, result: Result) -> Mapping[str, str]:
        """The advised configuration."""
        return {"toml": config(self._study)} if self._study is not None else {}

    def plot(self, result: Result, figure: Figure) -> None:
        """Cost saved over memory for each policy; below, hits and age over lifetime."""
        found = self._study
        if found is None:
            super().plot(result, figure)
            return
        panels = 2 + bool(found.lifetimes)
        figure.set_size_inches(8, 3.2 * panels)
        saved, hits, *rest = figure.subplots(panels, 1)
        _over_memory(saved, found, "compute saved, %", lambda point: point.saved)
        saved.axhline(100 * found.bound, color="#999999", linestyle=":", linewidth=1)
        _over_memory(hits, found, "requests hit, %", lambda point: point.hit_ratio)
        for axes in rest:
            _over_lifetime(axes, found)
        name = found.name.replace("$", r"\$")  # else it would begin a formula
        figure.suptitle(f"{name}: dashed = advised, dotted = no cache of that size saves more")


def _first(trace: Trace, quick: bool) -> Trace:
    return trace.first(QUICK_REQUESTS) if quick else trace


def _memory(count: int) -> str:
    return size(count).replace(" ", "")


def _over_memory(axes: Axes, found: Study, label: str, of: Callable[..., float]) -> None:
    for name, points in found.curves.items():
        axes.plot([point.memory / 2**20 for point in points], [100 * of(point) for point in points], ".-", label=name)
    axes.axvline(found.memory / 2**20, color="#444444", linestyle="--", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("memory, MiB")
    axes.set_ylabel(label)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _over_lifetime(axes: Axes, found: Study) -> None:
    fixed = [point for point in found.lifetimes if isinstance(point.ttl, int | float)]
    seconds = [float(point.ttl) for point in fixed if not isinstance(point.ttl, str | None)]
    axes.plot(seconds, [100 * point.hit_ratio for point in fixed], ".-", color="#2a78d6", label="requests hit, %")
    axes.set_xscale("log")
    axes.set_xlabel("lifetime, s")
    axes.set_ylabel("requests hit, %")
    age = axes.twinx()
    age.plot(seconds, [point.old_age for point in fixed], ".-", color="#eb6834", label="19 of 20 hits are younger")
    age.set_yscale("log")
    age.set_ylabel("age of a hit, s")
    lines = [*axes.get_lines(), *age.get_lines()]
    axes.legend(lines, [str(line.get_label()) for line in lines], frameon=False, fontsize=8)
