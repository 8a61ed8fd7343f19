"""One process of the table `signature`: `python -m mmcache.lab.signature_worker PLAN NUMBER OUT`.

It serves texts to an application that compares each output with what its version must give. It says `ready` when the
popular texts are stored, begins at a line on stdin, and ends after the plan's seconds.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from mmcache.lab.signature_models import ContentKeyed, Encoders, Output, alike, read, signature

if TYPE_CHECKING:
    from mmcache.cache import Cache

SESSIONS = 2000
FRESH = 0.05
"""Share of the requests that ask for a text that nobody has asked for."""

SERVED = np.dtype(
    [("at", "<i8"), ("until", "<i8"), ("new", "?"), ("hit", "?"), ("wrong", "?"), ("crashed", "?"), ("failed", "?")]
)
"""A request: monotonic ns of its begin and end; answered by the new version; without running it; the application read
another value than its version gives; the application could not read it; the encoder raised."""


class Plan(msgspec.Struct, frozen=True):
    """What all processes of a run are told."""

    way: str
    """`content`: a cache keyed by content; `gate`: ours, deployed process by process; `rollout`: ours, by canary."""
    root: str
    versions: tuple[str, str]
    """Old, new."""
    popular: list[str]
    fresh: list[str]
    scores: dict[str, dict[str, float]]
    """Version → text → what an application must read."""
    mean: bytes
    """float32 [384]."""
    processes: int
    threads: int
    rate: float
    """Requests a second and thread."""
    seconds: float
    deploy: list[float]
    """Seconds after which each process runs the new code; for ways without a rollout."""
    seed: int
    shared: str = ""
    """A server that keeps the rollout's state; empty = the folder."""
    failing: bool = False
    """The new version raises."""


Serve = Callable[[str, str, float], tuple[str, Output]]
"""`serve(text, session, elapsed)` → which version's output it should be, and the output."""


def main(plan_file: str, number: str, out: str) -> None:
    """Serve, and write `SERVED` rows to `out`."""
    plan = msgspec.msgpack.decode(Path(plan_file).read_bytes(), type=Plan)
    models = Encoders(np.frombuffer(plan.mean, np.float32))
    models.load()
    me = int(number)
    serve, close = opened(plan, models, me)
    for text in plan.popular[me :: plan.processes]:
        serve(text, "warm", 0.0)
    models.failing = plan.versions[1] if plan.failing else ""
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    rows: list[list[tuple[Any, ...]]] = [[] for _ in range(plan.threads)]
    threads = [
        threading.Thread(target=work, args=(plan, me * plan.threads + part, serve, models, began, rows[part]))
        for part in range(plan.threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    close()
    np.save(out, np.array([row for part in rows for row in part], SERVED))


def opened(plan: Plan, models: Encoders, me: int) -> tuple[Serve, Callable[[], None]]:
    """The way to serve, and what to do at the end."""
    old, new = plan.versions
    functions = {version: models.of(version) for version in plan.versions}

    def deployed(elapsed: float) -> str:
        return new if elapsed >= plan.deploy[me] else old

    if plan.way == "content":
        naive = ContentKeyed(Path(plan.root))

        def serve_naive(text: str, session: str, elapsed: float) -> tuple[str, Output]:
            version = deployed(elapsed)
            return version, naive.get_or_compute(text, functions[version])

        return serve_naive, lambda: None

    from mmcache.cache import Cache

    cache = Cache(plan.root)
    if plan.way == "rollout":
        return rolled(plan, cache, functions)
    encoders = {
        version: cache.wrap(function, modality="text", signature=signature(version), guard=False)
        for version, function in functions.items()
    }

    def serve_gate(text: str, session: str, elapsed: float) -> tuple[str, Output]:
        version = deployed(elapsed)
        return version, encoders[version](text)

    return serve_gate, cache.close


def rolled(plan: Plan, cache: Cache, functions: dict[str, Callable[[str], Output]]) -> tuple[Serve, Callable[[], None]]:
    """A rollout, whose state is in the folder or on a server."""
    from mmcache.rollout import Rollout
    from mmcache.rollout.places import places

    records, spare = places(cache.root)
    if plan.shared:
        from mmcache.settings import SharedSettings
        from mmcache.tiers.valkey.client import Client

        client = Client(SharedSettings(plan.shared), clock=cache.clock)
        records, spare = places(cache.root, client, "mmcache:")
    encode = Rollout(
        cache, "text", {version: (function, signature(version)) for version, function in functions.items()},
        modality="text", guard=False, compare=alike, compare_share=1.0, records=records, spare=spare,
    )  # fmt: skip

    def serve(text: str, session: str, elapsed: float) -> tuple[str, Output]:
        return encode.options(unit=session).versioned(text)

    def close() -> None:
        encode.close()
        cache.close()

    return serve, close


def work(plan: Plan, part: int, serve: Serve, models: Encoders, began: float, rows: list[tuple[Any, ...]]) -> None:
    """One thread: requests come at random times, whether or not the one before was served."""
    draw = np.random.default_rng((plan.seed, part))
    weights = 1 / np.arange(1, len(plan.popular) + 1)
    shares = np.cumsum(weights / weights.sum())
    fresh = iter(plan.fresh[part :: plan.processes * plan.threads])
    due = began
    while (due := due + draw.exponential(1 / plan.rate)) < began + plan.seconds:
        text = next(fresh, "") if draw.random() < FRESH else ""
        text = text or plan.popular[min(int(np.searchsorted(shares, draw.random())), len(plan.popular) - 1)]
        session = f"session {draw.integers(SESSIONS)}"
        time.sleep(max(0.0, due - time.monotonic()))
        rows.append(one(plan, serve, models, text, session, began))


def one(plan: Plan, serve: Serve, models: Encoders, text: str, session: str, began: float) -> tuple[Any, ...]:
    """One request, as a row of `SERVED`."""
    models.ran.clear()
    at = time.monotonic_ns()
    try:
        version, output = serve(text, session, at / 1e9 - began)
    except RuntimeError:
        return at, time.monotonic_ns(), False, False, False, False, True
    until = time.monotonic_ns()
    wrong = crashed = False
    try:
        wrong = read(version, output) != plan.scores[version][text]
    except (KeyError, ValueError):
        crashed = True
    return at, until, version == plan.versions[1], version not in models.ran, wrong, crashed, False


def load(path: Path) -> npt.NDArray[Any]:
    """Rows of `SERVED`, by time."""
    rows: npt.NDArray[Any] = np.load(path)
    return rows[np.argsort(rows["at"], kind="stable")]


if __name__ == "__main__":
    main(*sys.argv[1:])
