"""The trainer: numpy and torch agree; it learns what can be learned, and is not believed where nothing can."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from mmcache.cache import Cache
from mmcache.learn.lstm import RATE, LSTMTrainer, _Network
from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.policies.forecast import LARGEST, SEQUENCE
from mmcache.policies.freshness import HeatFreshness
from mmcache.testing import FakeClock, make_key

torch = pytest.importorskip("torch", reason="the forecast is trained by torch: pip install 'mmcache[learn]'")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Several threads for such small matrices only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_numpy_computes_what_torch_trained() -> None:
    network, rng = _Network(0), np.random.default_rng(0)
    counts = rng.poisson(1.5, (64, SEQUENCE)).astype(np.float32)
    for _ in range(3):
        network.learn(counts, counts.sum(axis=1))
    states, _ = network._lstm(torch.from_numpy(np.log1p(counts)).unsqueeze(-1))
    expected = network._dense(states[:, -1]).squeeze(-1).clamp(max=LARGEST).exp().detach().numpy()
    assert network.weights().expected(counts) == pytest.approx(expected, rel=1e-4)


def test_its_steps_are_those_of_torchs_adam() -> None:
    network, rng = _Network(0), np.random.default_rng(0)
    theirs = [parameter.detach().clone().requires_grad_() for parameter in network._parameters]
    adam = torch.optim.Adam(theirs, lr=RATE)
    for scale in (0.01, 5.0, 0.3):
        slopes = [torch.from_numpy(scale * rng.standard_normal(one.shape).astype(np.float32)) for one in theirs]
        for parameter, slope in zip(theirs, slopes, strict=True):
            parameter.grad = slope.clone()
        torch.nn.utils.clip_grad_norm_(theirs, 1.0)
        adam.step()
        network._update(slopes)
    for mine, other in zip(network._parameters, theirs, strict=True):
        assert mine.detach().numpy() == pytest.approx(other.detach().numpy(), abs=1e-5)


def test_the_programs_random_numbers_are_not_touched() -> None:
    before = torch.random.get_rng_state()
    network = _Network(1)
    network.learn(np.ones((4, SEQUENCE), np.float32), np.ones(4, np.float32))
    assert torch.equal(before, torch.random.get_rng_state())


def bursts(step: int) -> list[int]:
    """Twelve blocks come three times within one step and never return; four come once a step for ever.

    A window's count ranks what is over above what is to come; who looks at the steps can tell them apart.
    """
    steady = list(range(4))
    burst = [1000 + step * 10 + n for n in range(4) for _ in range(4)]
    return steady + burst


def feed(policy: HeatFreshness, trainer: LSTMTrainer, steps: int, uses_of: Callable[[int], list[int]]) -> None:
    """Drive `policy` as a cache of six blocks would."""
    held = set[Key]()
    for step in range(steps):
        uses = uses_of(step)
        random.Random(step).shuffle(uses)
        for key in map(make_key, uses):
            if key in held:
                policy.touch(key, float(step))
                continue
            policy.add(key, Facts(1), float(step))
            held.add(key)
            if len(held) > 6:
                gone = next(other for other in policy.victims(float(step)) if other != key)
                policy.drop(gone)
                held.discard(gone)
        trainer.step()


def differs(policy: HeatFreshness, key: Key) -> bool:
    why = policy.explain(key, 120.0)
    return why["forecast"] != why["uses"]


def test_what_can_be_learned_is_and_reaches_the_policy() -> None:
    policy = HeatFreshness(events=20 * SEQUENCE, seconds=1e6)
    trainer = LSTMTrainer(policy)
    feed(policy, trainer, 120, bursts)
    report = trainer.report()
    assert report["trusted"] == 1.0
    assert report["forecast_error"] < 0.5 * report["window_error"]
    assert report["forecast_hits"] > report["window_hits"]
    corrected = [key for key in policy.victims(120.0) if differs(policy, key)]
    assert corrected
    trainer.stop()
    assert not any(differs(policy, key) for key in corrected)


def test_it_learns_from_what_a_cache_serves_out_of_memory() -> None:
    clock, policy = FakeClock(), HeatFreshness(events=10 * SEQUENCE)
    with Cache(memory="1MiB", policy=policy, clock=clock) as cache:
        trainer = LSTMTrainer(policy)
        keys = [cache.key(f"text {n}", modality="text", signature="encoder-1") for n in range(5)]
        for n in range(200):
            clock.advance(0.1)
            cache.get_or_compute(keys[n % 5], lambda: "vector")
        assert cache.stats().hits == 195
        assert trainer.step() == 200 // 10


def test_where_the_window_is_as_good_the_forecast_is_not_used() -> None:
    policy = HeatFreshness(events=20 * SEQUENCE, seconds=1e6)
    trainer = LSTMTrainer(policy)
    feed(policy, trainer, 60, lambda step: [n for n in range(5) for _ in range(n + 2)])
    report = trainer.report()
    assert report["verdicts"] == 60
    assert report["window_error"] == 0.0
    assert report["trusted"] == 0.0
    for n in range(5):
        why = policy.explain(make_key(n), 60.0)
        assert why["forecast"] == why["uses"]


def test_behind_a_busy_cache_it_trains_once_a_call() -> None:
    policy = HeatFreshness(events=10 * SEQUENCE, seconds=1e6)
    trainer = LSTMTrainer(policy)
    for n in range(400):
        policy.add(make_key(n), Facts(1), 0.0)
    assert trainer.step() == 40
    assert 0 < trainer.report()["examples"] <= 10 * SEQUENCE


def test_the_same_uses_give_the_same_forecast() -> None:
    reports = []
    for _ in range(2):
        policy = HeatFreshness(events=20 * SEQUENCE, seconds=1e6)
        trainer = LSTMTrainer(policy, seed=3)
        feed(policy, trainer, 20, bursts)
        reports.append(trainer.report())
    assert reports[0] == reports[1]


def test_a_thread_does_the_work_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, called = HeatFreshness(), threading.Event()
    trainer = LSTMTrainer(policy, period_seconds=0.0)
    workers = set[str]()

    def step() -> int:
        workers.add(threading.current_thread().name)
        called.set()
        return 0

    monkeypatch.setattr(trainer, "step", step)
    with trainer:
        trainer.start()
        assert called.wait(30)
    assert workers == {"mmcache-lstm"}
    assert "mmcache-lstm" not in {thread.name for thread in threading.enumerate()}


def test_its_thread_takes_one_core_and_leaves_the_others_to_their_own() -> None:
    seen: dict[str, int] = {}

    def look(name: str) -> None:
        seen[name] = torch.get_num_threads()

    def train() -> None:
        _Network(0).use_one_core()
        look("trainer")

    def in_a_thread(work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    torch.set_num_threads(2)
    in_a_thread(train)
    in_a_thread(lambda: look("later"))
    look("here")
    assert seen == {"trainer": 1, "later": 2, "here": 2}


def test_a_backlog_is_bounded() -> None:
    policy = HeatFreshness()
    LSTMTrainer(policy)
    assert policy.history is not None
    assert policy.history.maxlen is not None


def test_without_torch_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SettingsError, match=r"mmcache\[learn\]"):
        LSTMTrainer(HeatFreshness())
