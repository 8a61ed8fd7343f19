"""One process of one host: `python -m mmcache.lab.demo_cluster.worker PLAN OUT`.

Encodes pictures, drawn by Zipf's law, until a line comes on stdin or stdin ends; what became of each goes to OUT.
Lines on stdout say how many are done.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import msgspec
import numpy as np
from blake3 import blake3

from mmcache.cache import Cache
from mmcache.events import Feed
from mmcache.lab.models import ImageEncoder
from mmcache.model.event import Failed, Hit, Missed

EXPONENT = 0.9
"""Of Zipf's law, as measured for web objects (Breslau et al., INFOCOM 1999)."""


class Plan(msgspec.Struct):
    """What a process is to do."""

    host: str
    url: str
    folder: str
    pictures: list[str]
    seed: int
    pause_seconds: float
    secret: bytes


class Request(msgspec.Struct, array_like=True):
    """What became of one."""

    at: float
    """Monotonic seconds, when it was answered."""
    seconds: float
    outcome: str
    """The tier of a hit, `computed`, or `error: …`."""
    picture: int
    output: bytes
    """16 bytes: BLAKE3 of the features."""


class Log(msgspec.Struct):
    """All of a process."""

    host: str
    requests: list[Request]
    failures: dict[str, int]
    """What the cache said of its tiers: text → how often."""
    tally: dict[str, int | float | str]
    """What the shared tier counted."""


def digest(features: object) -> bytes:
    """Of an array."""
    return blake3(np.ascontiguousarray(features).tobytes()).digest(length=16)


def outcome(feed: Feed, failures: dict[str, int]) -> str:
    """Where the answer just given came from."""
    found = ""
    for event in feed.drain():
        if isinstance(event, Failed):
            failures[f"{event.where}: {event.detail}"] = failures.get(f"{event.where}: {event.detail}", 0) + 1
        elif isinstance(event, Hit):
            found = event.tier
        elif isinstance(event, Missed):
            found = "computed"
    return found or "waited"  # for another process of either host, which computed it


def work(plan: Plan, stop: threading.Event) -> Log:
    """Until `stop`."""
    encoder, random = ImageEncoder(), np.random.default_rng(plan.seed)
    shares = np.arange(1, len(plan.pictures) + 1) ** -EXPONENT
    shares /= shares.sum()
    requests: list[Request] = []
    failures: dict[str, int] = {}
    computed = threading.Event()
    with Cache(plan.folder, shared=plan.url, secret=plan.secret, memory="8MiB") as cache, cache.events.feed() as feed:

        def encode_one(picture: object) -> object:
            computed.set()
            return encoder.encode(picture)  # type: ignore[arg-type]

        encode = cache.wrap(encode_one, modality="image", signature=encoder.signature, guard=False)
        encoder.load()
        print("ready", flush=True)
        while not stop.is_set():
            number = int(random.choice(len(shares), p=shares))
            started = time.monotonic()
            computed.clear()
            try:
                features = encode(Path(plan.pictures[number]))
                came = outcome(feed, failures)
                came = "waited" if came == "computed" and not computed.is_set() else came
                requests.append(Request(now := time.monotonic(), now - started, came, number, digest(features)))
            except Exception as error:  # noqa: BLE001 - the demo is to show that there is none
                requests.append(Request(now := time.monotonic(), now - started, f"error: {error!r}", number, b""))
            print(len(requests), flush=True)
            stop.wait(plan.pause_seconds)
        shared = cache.below.shared
        assert shared is not None
        tally = {k: v for k, v in shared.client.status().items() if isinstance(v, int)}
    return Log(plan.host, requests, failures, dict(tally))


def main() -> None:
    """See the module."""
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)
    stop = threading.Event()

    def wait() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    Path(sys.argv[2]).write_bytes(msgspec.msgpack.encode(work(plan, stop)))


if __name__ == "__main__":
    main()
