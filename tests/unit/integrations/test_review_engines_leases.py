"""A long queue of requests does not fill the scheduler's memory with outputs that are not wanted yet."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import Any

import numpy as np

from mmcache.integrations.vllm.leases import MOST_AHEAD, Facts, Leases
from mmcache.integrations.vllm.outputs import Expected, Output
from mmcache.model.signature import Signature

FACTS = Facts(Signature(model_version="m"), "t", Expected("image", 1, "float32", {}))
OUTPUT = Output(np.ones((1, 1), np.float32), "float32")


class AtOnce(Executor):
    """Every lookup is done when it is asked for."""

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


def test_lookups_ahead_are_limited_and_go_on_as_requests_do() -> None:
    asked: list[str] = []

    def find(name: str, facts: Facts) -> Output:
        asked.append(name)
        return OUTPUT

    leases = Leases(find, AtOnce(), 1.0)
    names = [str(number) for number in range(3 * MOST_AHEAD)]
    for name in names:
        leases.open(name, FACTS, f"request-{name}", 0.0)
    assert len(asked) == MOST_AHEAD
    for turn, name in enumerate(names):  # in the order of the queue, long after they came
        assert leases.settled([name], 100.0 + turn)
        assert leases.holds(name)
        assert leases.take(name) is not None
        leases.close(f"request-{name}")
    assert asked == names


def test_what_is_not_there_takes_no_room() -> None:
    asked: list[str] = []
    leases = Leases(lambda name, facts: asked.append(name), AtOnce(), 1.0)
    for number in range(3 * MOST_AHEAD):
        leases.open(str(number), FACTS, "r", 0.0)
    assert len(asked) == 3 * MOST_AHEAD


def test_who_was_given_up_makes_room() -> None:
    leases = Leases(lambda name, facts: OUTPUT, AtOnce(), 1.0)
    for number in range(MOST_AHEAD + 1):
        leases.open(str(number), FACTS, str(number), 0.0)
    last = str(MOST_AHEAD)
    assert not leases.settled([last], 9.0)
    leases.close("0")
    assert leases.settled([last], 9.0)
    assert leases.holds(last)
