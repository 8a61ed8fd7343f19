"""How a load looks while it lasts, and at its end: figures of the last seconds, and what the local cluster says."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmcache.cli.ending import ended_by_signal
from mmcache.cli.output import Speak, complain, facts, show
from mmcache.model.errors import ScaleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from mmcache.lab.load.counts import Counts
    from mmcache.lab.load.crowd import Crowd
    from mmcache.lab.load.job import Job
    from mmcache.scale.local import Handle
    from mmcache.scale.local.files import Files, Told

_DRAW_SECONDS = 0.25
_WINDOW_SECONDS = 5.0
_SETTLED_SECONDS = 0.5
"""The newest bin of time is not yet told by all."""


@dataclass(frozen=True)
class Target:
    """Where the load goes."""

    url: str
    password: str | None = None
    files: Files | None = None
    """Of a local cluster."""

    @staticmethod
    def local(handle: Handle) -> Target:
        """A cluster of this machine. Raises `ScaleError` where there is none."""
        if not handle.exists:
            raise ScaleError(
                f"no cluster in {handle.files.folder}: `mmcache cluster up` makes one; or name one by --to"
            )
        return Target(handle.url, handle.password, handle.files)

    def told(self) -> Told | None:
        """What its supervisor says."""
        return None if self.files is None else self.files.told()


def watched(job: Job, target: Target, speak: Speak) -> dict[str, Any]:
    """Run it, drawn where somebody watches; print and return its summary. ^C ends it early, with the summary.

    Raises `KeyboardInterrupt` after that.
    """
    from mmcache.lab.load.crowd import Crowd
    from mmcache.lab.load.summary import summary

    with ended_by_signal() as pause, Crowd(job) as crowd:
        with _screen(speak) as draw:
            if _filled(crowd, job, pause, draw):
                crowd.go()
                while crowd.running(0.0) and pause(_DRAW_SECONDS):
                    draw(lambda: _view(job, crowd, target.told()))
            if not pause(0.0):
                crowd.stop()
        outcome = crowd.outcome()
        found = summary(job, outcome)
        show(speak, found, lambda: facts("Load", _lines(found)))
        if crowd.told:
            complain(f"the tier's last words: {crowd.told}")
    return found


def _filled(crowd: Crowd, job: Job, pause: Callable[[float], bool], draw: Callable[..., None]) -> bool:
    """Whether all blocks are there; False when ended meanwhile."""
    while crowd.filling(0.0):
        draw(lambda: facts("Load", {"blocks written": f"{crowd.filled:,} of {job.keys:,}"}))
        if not pause(_DRAW_SECONDS):
            return False
    return True


@contextmanager
def _screen(speak: Speak) -> Iterator[Callable[[Callable[[], RenderableType]], None]]:
    """Draws in place on stderr where somebody watches."""
    if speak.json or not sys.stderr.isatty():
        yield lambda view: None
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield lambda view: live.update(view(), refresh=True)


def _view(job: Job, crowd: Crowd, told: Told | None) -> RenderableType:
    end = max(0.0, crowd.elapsed - _SETTLED_SECONDS)
    begin = max(0.0, end - _WINDOW_SECONDS)
    counts, whole = crowd.between(begin, end), crowd.between(0.0, crowd.elapsed)
    lines: dict[str, object] = {
        "second": f"{min(crowd.elapsed, job.seconds):.0f} of {job.seconds:g}"
        + ("" if crowd.elapsed < job.seconds else ": looks for all that it wrote"),
        **_now(counts, max(end - begin, 1e-9), job.qps * job.shape.at(end)),
        "not answered, not stored": f"{counts.failed:,} now, {whole.failed:,} in all",
        "wrong answers": whole.wrong,
        "lost": whole.lost + whole.stale,
    }
    if told is not None and told.status is not None:
        status = told.status
        lines["cluster"] = f"{status.shards} of {status.wanted} shards, {status.phase.value}" + (
            f", {status.progress.moved} of {status.progress.total} slots moved" if status.progress else ""
        )
        lines["cluster says"] = status.message
    if crowd.told:
        lines["tier says"] = crowd.told
    return facts("Load", lines)


def _now(counts: Counts, seconds: float, asked: float) -> dict[str, object]:
    from mmcache.lab.load.summary import times

    took = times(counts)
    return {
        "requests a second": f"{counts.requests / seconds:,.0f} of {asked:,.0f}",
        "hits": _share(counts.hit_share),
        "P50, P99": f"{_ms(took['p50_ms'])}, {_ms(took['p99_ms'])}",
    }


def _lines(found: dict[str, Any]) -> dict[str, object]:
    checked = found["checked"]
    return {
        "requests a second": f"{found['qps']:,.0f} of {found['asked_qps']:,.0f}, for {found['seconds']:g} s",
        "hits": _share(found["hit_ratio"]),
        "P50, P99, P99.9": ", ".join(_ms(found[name]) for name in ("p50_ms", "p99_ms", "p999_ms")),
        "MB a second": f"{found['megabytes_a_second']:g}",
        "not answered, not stored": _by_reason(found["missed"], found["refused"]),
        "wrong answers": found["wrong"],
        "lost": f"{found['lost']}"
        + (" so far; not all were looked for" if checked is None else f" of {checked['keys']:,} that were written")
        + (f"; {checked['unread']:,} could not be read" if checked and checked["unread"] else ""),
        "longest a key had no answer": f"{found['longest_silence_seconds']:g} s",
        "processes busy": ", ".join(f"{100 * share:.0f} %" for share in found["processor_shares"]),
        **({"not asked for want of time": f"{found['unasked']:,}; {found['limit']}"} if found["limit"] else {}),
    }


def _by_reason(missed: dict[str, int], refused: dict[str, int]) -> str:
    """What is not there is a miss, but an answer."""
    counts = Counter(missed) + Counter(refused)
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(counts.items()) if reason != "absent") or "0"


def _share(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g} ms"
