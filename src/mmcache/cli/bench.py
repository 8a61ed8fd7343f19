"""`mmcache bench`: run benchmarks of the checkout again; `mmcache bench load` puts a load on a shared cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from secrets import randbits
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter, validators

from mmcache.cli import checkout
from mmcache.cli.bench_live import Target, watched
from mmcache.cli.cluster_options import DEFAULT_PLACE, Place
from mmcache.cli.lab import Out, Quick, Strict, results_folder
from mmcache.cli.output import DEFAULT_SPEAK, Exit, Speak, grid, show
from mmcache.model.errors import SettingsError

if TYPE_CHECKING:
    from mmcache.lab.load.shape import Shape

app = App(name="bench")

_LIVE_SECONDS = 3600.0
_MOST_LANES = 64
_MOST_KEYS = 10_000_000


@app.default
def bench(
    *names: str,
    quick: Quick = False,
    out: Out = None,
    strict: Strict = False,
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """Run benchmarks of the source checkout beside their peers: `all`, or some by name; without a name, list them.

    Each runs in a process of its own. With --json, one line of JSON a benchmark. `mmcache bench load` puts a load on a
    shared cluster: see its own --help.

    Example: mmcache bench hit_path --quick
    """
    source = checkout.find()
    if source is None:
        raise SettingsError("benchmarks are in the source checkout, not in the package; clone it and run this there")
    scripts = {path.stem: path for path in sorted((source / "benchmarks").glob("[!_]*.py"))}
    if not names:
        show(speak, list(scripts), lambda: grid("Benchmarks", ("name",), [(name,) for name in scripts]))
        return Exit.DONE
    if unknown := [name for name in names if name != "all" and name not in scripts]:
        raise SettingsError(f"no benchmark named {', '.join(unknown)}; known: all, {', '.join(scripts)}")
    folder, met = results_folder(quick, out), True
    options = ["--quick"] * quick + ["--json"] * speak.json + (["--out", str(folder)] if folder else [])
    for name in scripts if "all" in names else names:
        met = _script(scripts[name], *options) and met
    return Exit.NO if strict and not met else Exit.DONE


def _script(script: Path, *options: str) -> bool:
    """Run one, its output going where ours goes; whether it met its targets."""
    done = subprocess.run([sys.executable, str(script), "--strict", *options], check=False)
    if done.returncode not in (Exit.DONE, Exit.NO):
        raise SettingsError(f"the benchmark {script.stem} could not run (exit code {done.returncode}); see above")
    return done.returncode == Exit.DONE


@app.command
def load(
    *,
    to: Annotated[
        str | None,
        Parameter(help="URL of a shared tier, `valkey://host:6379?cluster=true`; default: the cluster of this machine "
                  "that `mmcache cluster up` made. A password: $MMCACHE_SHARED_PASSWORD."),
    ] = None,
    qps: Annotated[
        float, Parameter(help="Requests a second that come; outside of bursts.", validator=validators.Number(gt=0))
    ] = 1000.0,
    seconds: Annotated[float, Parameter(help="How long.", validator=validators.Number(gt=0))] = 60.0,
    shape: Annotated[
        Literal["steady", "burst", "ramp", "trace"],
        Parameter(help="steady; burst: see --burst; ramp: from 0 to twice the mean; trace: as in --trace."),
    ] = "steady",
    burst: Annotated[
        str | None, Parameter(help="FACTOR@START+LENGTH, seconds: `3@60+120`; without +LENGTH to the end.")
    ] = None,
    trace: Annotated[
        Path | None, Parameter(help="CSV or JSON lines with a column of times: its lulls and bursts, in --seconds.")
    ] = None,
    keys: Annotated[int, Parameter(help="Blocks.", validator=validators.Number(gte=1, lte=_MOST_KEYS))] = 10_000,
    size: Annotated[
        str, Parameter(help="Bytes of a block, `4KiB`; `mix`: as encoders give for text, pictures, sound, video.")
    ] = "4KiB",
    zipf: Annotated[float, Parameter(help="Exponent of the keys' popularity; 0 = all alike.",
                                     validator=validators.Number(gte=0, lte=3))] = 0.9,
    reads: Annotated[float, Parameter(help="Share of requests that read, 0 to 1; the others write.",
                                      validator=validators.Number(gte=0, lte=1))] = 0.9,
    processes: Annotated[
        int | None, Parameter(help="Of the generator; default: one a core, at most 4.",
                              validator=validators.Number(gte=1, lte=256)),
    ] = None,
    lanes: Annotated[
        int,
        Parameter(help="Threads of each, that ask side by side.", validator=validators.Number(gte=1, lte=_MOST_LANES)),
    ] = 2,
    timeout: Annotated[float, Parameter(help="Seconds that a node may take.", validator=validators.Number(gt=0))] = 0.5,
    prefix: Annotated[str, Parameter(help="Of the keys; real caches have another.")] = "mmcache-load:",
    seed: Annotated[int, Parameter(help="Of the random requests.", validator=validators.Number(gte=0))] = 0,
    keep: Annotated[
        bool, Parameter(negative="", show_default=False, help="Leave the blocks there, which are removed else.")
    ] = False,
    strict: Annotated[
        bool, Parameter(negative="", show_default=False, help="Exit with 1 when an answer was wrong or a block lost.")
    ] = False,
    place: Place = DEFAULT_PLACE,
) -> int:  # fmt: skip
    """Put a load on a shared cluster, and check every byte that it answers.

    Requests come when they are to come, whatever the earlier ones did (open loop), and are timed from then. They go
    through the product's own shared tier, and no memory tier answers in its place. Blocks are written once before it
    begins. At the end all that was acknowledged is looked for: what is not there is lost. ^C ends it with the summary.

    Example: mmcache bench load --qps 3000 --burst 3@90+120 --seconds 300
    """
    from mmcache.lab.load import blocks
    from mmcache.lab.load.job import Job

    if burst is not None and shape == "steady":
        shape = "burst"
    if trace is not None and shape == "steady":
        shape = "trace"
    sizes = blocks.size_of(size)
    chosen = _shape(shape, burst, trace, seconds)
    target = Target.local(place.handle) if to is None else Target(to)
    job = Job(
        target.url, qps, seconds, keys, dict(sizes), target.password, prefix, timeout, zipf, reads,
        starts=chosen.starts, factors=chosen.factors, live_seconds=seconds + _LIVE_SECONDS, seed=seed, run=randbits(48),
        processes=processes or min(4, os.cpu_count() or 1), lanes=lanes, clean=not keep,
    )  # fmt: skip
    found = watched(job, target, place)
    bad = found["wrong"] or found["lost"] or (found["checked"] or {}).get("unread")
    return Exit.NO if strict and bad else Exit.DONE


def _shape(name: str, burst: str | None, trace: Path | None, seconds: float) -> Shape:
    from mmcache.lab.load import shape as shapes

    if (name == "burst") != (burst is not None) or (name == "trace") != (trace is not None):
        raise SettingsError("--burst says when for --shape burst, --trace FILE for --shape trace; one of both")
    if burst is not None:
        return shapes.burst(burst)
    if trace is not None:
        return shapes.traced(shapes.arrival_times(trace), seconds)
    return shapes.ramp(seconds) if name == "ramp" else shapes.steady()
