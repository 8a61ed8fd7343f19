"""`mmcache trace`: watch a running process from the kernel."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from mmcache.cli.output import DEFAULT_SPEAK, Exit, Speak, complain, grid, show
from mmcache.model.errors import TracerError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mmcache.tracer import Mark, Trace
    from mmcache.tracer.feedback import Sender

_REFRESH = 1.0
_MOST_MARKS = 10_000


def trace(
    *,
    pid: Annotated[int, Parameter(help="The process; all its threads are watched.")],
    seconds: Annotated[float | None, Parameter(help="Stop after that long. Default: at ^C, or when it ends.")] = None,
    top: Annotated[int, Parameter(help="How many keys are shown.")] = 20,
    threshold: Annotated[int, Parameter(help="Reads a second above which a key is hot; at most 127.")] = 100,
    mark: Annotated[bool, Parameter(negative="", help="Tell the process which keys are hot; it must listen.")] = False,
    sockets: Annotated[bool, Parameter(help="Also time the connections that carry Redis commands.")] = True,
    shared: Annotated[str | None, Parameter(help="host:port: time connections to there instead; for TLS.")] = None,
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """Show the hottest keys of a running process and how long its shared tier takes. Needs root, and restarts nothing.

    Example: mmcache trace --pid 4711 --seconds 10
    """
    from mmcache.tracer import Trace

    if seconds is not None and seconds <= 0:
        raise TracerError(f"--seconds must be above 0, not {seconds}")
    marks: deque[Mark] = deque(maxlen=_MOST_MARKS)
    hearers: list[Callable[[Mark], object]] = [marks.append]
    with ExitStack() as stack:

        def hear(one: Mark) -> None:
            for hearer in hearers:
                hearer(one)

        traced = stack.enter_context(Trace(pid, hear, threshold=threshold, sockets=sockets, shared=shared))
        senders = _senders(traced) if mark else []
        for sender in senders:
            stack.callback(sender.close)
            hearers.append(sender.send)
        began = time.monotonic()
        complain(f"watching process {pid}")  # from here on nothing is missed, says this to who started it
        _watch(traced, marks, top, None if seconds is None else began + seconds, live=not speak.json)
        data = _data(traced, marks, top, time.monotonic() - began)
        if senders:
            data["sent"] = {"marks": sum(one.sent for one in senders), "lost": sum(one.lost for one in senders)}
        ended = not traced.alive
        view = _view(traced, marks, top)
    show(speak, data, lambda: view)
    if ended:
        complain(f"process {pid} has ended")
    if not data["totals"]["reads"]:
        complain(f"process {pid} read nothing from its memory tier meanwhile")
    if data["totals"]["marks_lost"]:
        complain(f"{data['totals']['marks_lost']} marks were lost: too many keys became hot at once")
    return Exit.DONE


def _senders(traced: Trace) -> list[Sender]:
    from mmcache.tracer.feedback import Sender

    paths = traced.marks_paths
    if not paths:
        raise TracerError(
            f"process {traced.pid} does not listen for marks: start `mmcache.tracer.Marks(cache)` in it, "
            "or leave out --mark"
        )
    return [Sender(path, traced.owner) for path in paths]


def _watch(traced: Trace, marks: deque[Mark], top: int, until: float | None, *, live: bool) -> None:
    """Until the time is over, the process has ended or ^C."""
    with ExitStack() as stack:
        update: Callable[[Any], object] | None = None
        if live and sys.stdout.isatty():
            from rich.live import Live

            update = stack.enter_context(Live(transient=True, auto_refresh=False)).update
        shown = time.monotonic()
        try:
            while traced.alive and (until is None or time.monotonic() < until):
                left = _REFRESH if until is None else until - time.monotonic()
                traced.poll(max(0.0, min(0.25, left)))
                if time.monotonic() < shown + _REFRESH:
                    continue
                shown = time.monotonic()
                traced.sockets()  # those that were opened meanwhile, too
                if update is not None:
                    update(_view(traced, marks, top), refresh=True)  # type: ignore[call-arg]
        except KeyboardInterrupt:  # the way to end it
            pass
        traced.poll()


def _data(traced: Trace, marks: deque[Mark], top: int, seconds: float) -> dict[str, Any]:
    names = _names(marks)
    return {
        "pid": traced.pid,
        "seconds": seconds,
        "totals": asdict(traced.totals()),
        "keys": [asdict(one) | {"key": names.get(one.short)} for one in traced.hottest(top)],
        "sockets": [asdict(one) for one in traced.sockets()],
        "marks": [
            {
                "key": str(one.key),
                "short": one.key.short,
                "at": one.at / 1e9,
                "reads": one.reads,
                "waiting": one.waiting,
            }
            for one in marks
        ],
    }


def _names(marks: deque[Mark]) -> dict[str, str]:
    """Whole keys of what was hot; the kernel keeps no other's."""
    return {one.key.short: str(one.key) for one in marks}


def _view(traced: Trace, marks: deque[Mark], top: int) -> RenderableType:
    from rich.console import Group

    now = time.monotonic()
    lines = [
        (
            one.short,
            f"{one.per_second:.0f}",
            one.reads,
            f"{100 * one.hits / max(1, one.reads):.1f} %",
            f"{1e6 * one.delay_mean:.1f} µs",
            f"{1e6 * one.delay_max:.0f} µs",
            "" if one.hot_since is None else f"{now - one.hot_since:.1f} s",
        )
        for one in traced.hottest(top)
    ]
    totals = traced.totals()
    title = f"process {traced.pid}: {totals.reads} reads, {totals.hits} hits, {totals.marks} hot marks"
    parts = [grid(title, ("key", "reads/s", "reads", "hits", "delay", "longest", "hot for"), lines)]
    times = [
        (
            one.peer or "closed",
            one.count,
            f"{1e6 * one.mean:.0f} µs",
            f"≤ {1e6 * one.median:.0f} µs",
            f"{1e6 * one.most:.0f} µs",
        )
        for one in traced.sockets()
    ]
    if times:
        parts.append(grid("shared tier", ("peer", "answers", "mean", "median", "longest"), times))
    return Group(*parts)
