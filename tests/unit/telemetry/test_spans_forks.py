"""A forked child makes its own spans, and none of its parent's."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from tests.unit.telemetry.recorded import Recorded

from mmcache import Cache
from mmcache.telemetry.quiet import Sending


def in_child(work: Any) -> Any:
    """What `work` returns in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = json.dumps(work()).encode()
        except BaseException as error:  # noqa: BLE001 - told to the parent
            said = json.dumps(repr(error)).encode()
        os.write(writing, said)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said)


def test_a_child_goes_on_and_what_waited_is_the_parents_alone() -> None:
    with Cache() as cache, Recorded(cache) as recorded:
        encode = cache.wrap(len, modality="text", signature="v1", guard=False)
        encode("a cat")
        recorded.unwatched()
        key = encode.key("a cat")
        cache.peek(key)  # waits
        encode("a cat")  # waits
        drawn = recorded.spans._draw.random

        def work() -> Any:
            recorded.exporter.clear()
            inherited = len(recorded.told())
            cache.peek(key)
            encode("a dog")
            told = [(one["cache.outcome"], one["cache.content"]) for one in recorded.told()]
            alive = recorded.spans.thread.is_alive()
            changed = recorded.spans._draw.random is not drawn
            recorded.close()
            return [inherited, told, alive, changed, len(recorded.all("cache.compute"))]

        inherited, told, alive, changed, computed = in_child(work)
        assert inherited == 0
        assert sorted(outcome for outcome, _ in told) == ["hit", "miss"]
        assert (alive, changed, computed) == (True, True, 1)
        assert [one["cache.outcome"] for one in recorded.told()] == ["miss", "hit", "hit"]


def test_a_child_draws_otherwise_than_its_parent() -> None:
    with Cache() as cache, Recorded(cache, sample=0.5) as recorded:
        mine = recorded.spans._draw

        def work() -> Any:
            return [mine.random() for _ in range(8)]

        assert in_child(work) != work()


def test_a_child_that_is_forked_while_spans_are_counted_counts_its_own() -> None:
    sending = Sending()
    with sending._lock:
        assert in_child(lambda: forked_free(sending)) is True


def forked_free(sending: Sending) -> bool:
    """Whether a span finds room; ends the process where it would wait for ever."""
    signal.alarm(60)
    return sending.room(1)
