"""What was said to exist reaches the worker; what is looked up elsewhere holds nobody up for long."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from mmcache.integrations.vllm.leases import Facts, Leases
from mmcache.integrations.vllm.outputs import Expected, Output
from mmcache.integrations.vllm.saving import Saved, Saving
from mmcache.model.signature import Signature

torch = pytest.importorskip("torch")
FACTS = Facts(Signature(model_version="m"), "t", Expected("image", 2, "float32", {}))
OUTPUT = Output(np.ones((2, 3), np.float32), "float32")


class Shelf:
    def __init__(self) -> None:
        self.there = {"a": OUTPUT}
        self.asked: list[str] = []

    def find(self, name: str, facts: Facts) -> Output | None:
        self.asked.append(name)
        return self.there.get(name)


def test_what_was_said_to_exist_stays_though_it_is_gone() -> None:
    shelf = Shelf()
    leases = Leases(shelf.find, None, 0.0)
    leases.open("a", FACTS, "r", 0.0)
    assert leases.holds("a")
    shelf.there.clear()
    assert leases.holds("a")  # asked again in the next step, before there was room
    handover = leases.take("a")
    assert handover is not None
    assert handover.output is OUTPUT
    assert leases.take("a") is None
    assert not leases.holds("a")


def test_an_item_of_nobody_does_not_exist() -> None:
    leases = Leases(Shelf().find, None, 0.0)
    assert not leases.holds("a")
    assert leases.take("a") is None
    assert leases.facts("a") is None


def test_an_item_is_known_as_long_as_a_request_needs_it() -> None:
    leases = Leases(Shelf().find, None, 0.0)
    leases.open("a", FACTS, "one", 0.0)
    leases.open("a", FACTS, "two", 0.0)
    leases.close("one")
    assert leases.facts("a") is FACTS
    leases.close("two")
    leases.close("two")
    assert len(leases) == 0


def test_after_a_change_of_weights_nothing_known_before_counts() -> None:
    leases = Leases(Shelf().find, None, 0.0)
    leases.open("a", FACTS, "r", 0.0)
    assert leases.holds("a")
    leases.forget()
    assert leases.take("a") is None
    assert leases.facts("a") is None  # and an output made now is not stored under the old name


class Later(ThreadPoolExecutor):
    """An executor whose work is done when the test says so."""

    def __init__(self) -> None:
        super().__init__(1)
        self.promised: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.promised.append((future, fn, args))
        return future

    def work(self) -> None:
        for future, fn, args in self.promised:
            future.set_result(fn(*args))
        self.promised.clear()


def test_a_lookup_elsewhere_starts_at_once_and_is_waited_for() -> None:
    shelf, later = Shelf(), Later()
    leases = Leases(shelf.find, later, 0.5)
    leases.open("a", FACTS, "r", 100.0)
    assert not leases.settled(["a"], 100.1)
    assert not leases.holds("a")
    later.work()
    assert leases.settled(["a"], 100.2)
    assert leases.holds("a")
    assert shelf.asked == ["a"]


def test_patience_ends() -> None:
    leases = Leases(Shelf().find, Later(), 0.5)
    leases.open("a", FACTS, "r", 100.0)
    assert leases.settled(["a", "unknown"], 100.6)
    assert not leases.holds("a")  # so it is encoded


def test_saving_stores_a_copy_and_says_what_does_not_fit() -> None:
    stored: list[Saved] = []
    gate = threading.Event()

    def store(saved: Saved) -> None:
        assert gate.wait(30)
        stored.append(saved)

    saving = Saving(store, backlog_bytes=40)
    output = torch.ones(2, 3)
    assert saving.save("a", FACTS, output)
    output.zero_()  # the engine reuses its memory
    assert not saving.save("b", FACTS, output)
    assert saving.dropped == 1
    gate.set()
    saving.close()
    assert [saved.name for saved in stored] == ["a"]
    assert stored[0].tensor.sum() == 6
    assert saving.save("c", FACTS, output)
    saving.close()
    assert len(stored) == 2


def test_a_copy_that_fails_costs_its_output_only() -> None:
    stored: list[Saved] = []
    saving = Saving(stored.append, backlog_bytes=1000)
    assert not saving.save("a", FACTS, torch.empty(2, 3, device="meta"))
    assert saving.save("b", FACTS, torch.ones(2, 3))
    saving.close()
    assert [saved.name for saved in stored] == ["b"]
    assert saving.dropped == 1
