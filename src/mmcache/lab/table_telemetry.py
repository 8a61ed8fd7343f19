"""Table `telemetry-cost`: what spans and metrics cost a hit, beside what a user would write around the call.

Each contender is a process of its own, so that one's exporter does not disturb another; they take turns, round by
round, and ratios are taken within a round. Spans go to a receiver in the table's own process, which only counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar

from mmcache.lab.measure import machine
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.model.errors import AssetError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONTENDERS = {
    "off": ("off", "0"),
    "on-0%": ("on", "0"),
    "on-1%": ("on", "0.01"),
    "on-100%": ("on", "1"),
    "otel-1%": ("otel", "0.01"),
    "otel-100%": ("otel", "1"),
    "prometheus": ("prometheus", "0"),
}
WORDS = {
    "off": "nothing watches",
    "on-0%": "instrument(sample=0): metrics, no spans",
    "on-1%": "instrument(sample=0.01)",
    "on-100%": "instrument(sample=1)",
    "otel-1%": "a span of the SDK around the call, ratio 0.01",
    "otel-100%": "a span of the SDK around the call, all",
    "prometheus": "a prometheus_client counter and histogram around the call",
}
WAYS = {
    "peek": "cache.peek",
    "get_or_compute": "cache.get_or_compute",
    "text": "a wrapped text encoder",
    "picture": "a wrapped picture encoder, 224 x 224",
    "batch": "a wrapped encoder, batches of 64, of one",
    "async": "await cache.a.get_or_compute",
}
LARGEST = 1.05
"""Times what a hit takes with nothing watching, at 1 %."""
KEPT = 40
"""Blocks of memory that come and go by themselves in a turn, whatever runs."""
OURS = ("on-0%", "on-1%")
"""What must stay within it."""


@dataclass(frozen=True)
class Turn:
    """What a process did in one turn."""

    hits: int
    wall: float
    cpu: float
    """Seconds, up to the last byte sent."""
    kept: int
    """Blocks of memory more than before."""
    made: int
    """Spans that were sent."""


class Process:
    """A contender."""

    def __init__(self, name: str, otlp: str) -> None:
        command = [sys.executable, "-m", "mmcache.lab.telemetry_worker", *CONTENDERS[name], otlp]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.name = name

    def ready(self) -> None:
        """Return when it has stored everything. Raises `AssetError`."""
        if self._line() != "ready":
            raise AssetError(f"the process of {self.name!r} does not start: pip install 'mmcache[otel]' and test needs")

    def turn(self, way: str, seconds: float) -> Turn:
        """Let it run for so long."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{way} {seconds}\n")
        self._process.stdin.flush()
        return Turn(**json.loads(self._line()))

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


class _Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Take it."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *said: object) -> None:
        """Say nothing."""


@contextmanager
def receiver() -> Iterator[str]:
    """The address of one that takes OTLP and keeps nothing."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    thread = threading.Thread(target=server.serve_forever, name="receiver", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class TelemetryTable(Table):
    """Time, CPU and memory, by contender and way of the hit."""

    name: ClassVar[str] = "telemetry-cost"
    title: ClassVar[str] = "What spans and metrics cost a hit: off, on, and what a user would write"
    remark: ClassVar[str] = (
        "Off, a hit pays for one comparison and keeps no block of memory. At 1 % a hit that memory answers by "
        "itself pays nothing in Python; one that takes our Python path pays for a draw (about 0.15 µs), and one in "
        "a hundred for a span, whose making and sending takes some 20 µs, most of it in other threads. So the share "
        "that is lost grows as the path gets shorter: it is largest for `async`, whose whole hit takes 5 µs. `cpu` "
        "counts every thread up to the last byte sent, with one request to the receiver a turn, as in a process "
        "that is busy all the time, and with what the limit saved up while others had their turns; `spans` shows "
        "where the limit of 500 a second holds. Times of short paths on a shared machine vary more than what is "
        "looked for; the CPU ratios vary less."
    )
    default_seeds: ClassVar[tuple[int, ...]] = (0,)

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Raises `AssetError` where a contender's package is missing."""
        rounds, seconds = (3, 0.15) if quick else (7, 0.8)
        found: dict[str, dict[str, list[Turn]]] = {way: {name: [] for name in CONTENDERS} for way in (*WAYS, "report")}
        with ExitStack() as ends:
            otlp = ends.enter_context(receiver())
            processes = [ends.enter_context(Process(name, otlp)) for name in CONTENDERS]
            for process in processes:
                process.ready()
            kept = {way: min(processes[0].turn(f"kept:{way}", 0.05).kept for _ in range(3)) for way in WAYS}
            for done in range(rounds):
                for way in (*WAYS, "report"):
                    for process in processes if done % 2 else reversed(processes):
                        found[way][process.name].append(process.turn(way, seconds))
                progress("rounds", done + 1, rounds)
        rows = [row for way in WAYS for row in _rows(way, found[way], kept[way])]
        reports = [1e3 * turn.cpu for turn in found["report"]["on-1%"]]
        rows.append(Row.of("report", "CPU of one report of metrics, sent every 10 s", "ms", "lower", reports))
        real = (
            "hits in memory of a real cache, one thread; each contender a process of its own, in turn",
            "spans and metrics sent by OTLP over HTTP to a receiver on this machine, which reads and forgets them",
            f"turns of {seconds} s, {rounds} rounds; CPU is of the whole process, until its last span is sent",
            machine(),
        )
        return Result(self.name, quick, tuple(seeds), real, ("the model: it gives zeros",), tuple(rows))

    def plot(self, result: Result, figure: Figure) -> None:
        """CPU of a hit, by way."""
        found = {row.id: row.ours for row in result.rows}
        figure.set_size_inches(8, 3.4)
        shown = {"on-1%": "#2f7d5b", "otel-1%": "#b5482f", "prometheus": "#c9a227"}
        axes = figure.subplots()
        for place, (name, colour) in enumerate(shown.items()):
            heights = [found.get(f"{way}/{name}/cpu") or 0.0 for way in WAYS]
            axes.bar([n + 0.27 * (place - 1) for n in range(len(WAYS))], heights, 0.25, color=colour, label=WORDS[name])
        axes.axhline(1.0, color="#8793a6", linewidth=1)
        axes.set_xticks(range(len(WAYS)), list(WAYS))
        axes.set_yscale("log")
        axes.set_ylabel("CPU of a hit, times that of nothing watching")
        axes.legend(frameon=False, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        figure.suptitle(f"{result.name}{' (quick)' if result.quick else ''}")


def _rows(way: str, turns: Mapping[str, Sequence[Turn]], kept: int) -> Iterator[Row]:
    off = turns["off"]
    nothing = f"{WAYS[way]}: {WORDS['off']}"
    yield Row.of(f"{way}/off", f"{nothing}; a hit", "ns", "lower", [1e9 * turn.wall / turn.hits for turn in off])
    more = max(0, kept - KEPT)
    yield Row.of(f"{way}/off/kept", f"{nothing}; memory blocks that a turn keeps", "blocks", "lower", more, target=0.0)
    for name, mine in turns.items():
        if name == "off":
            continue
        what, target = f"{WAYS[way]}: {WORDS[name]}", LARGEST if name in OURS else None
        pairs = list(zip(mine, off, strict=True))
        took = [one.wall / one.hits / (other.wall / other.hits) for one, other in pairs]
        yield Row.of(f"{way}/{name}/time", f"{what}; time of a hit", "x", "lower", took, target=target)
        cost = [one.cpu / one.hits / (other.cpu / other.hits) for one, other in pairs]
        yield Row.of(f"{way}/{name}/cpu", f"{what}; CPU of the process, sending too", "x", "lower", cost, target=target)
        if name in ("on-1%", "on-100%"):
            each = [turn.made / turn.wall for turn in mine]
            yield Row.of(f"{way}/{name}/spans", f"{what}; spans sent a second", "1/s", "higher", each)
