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
    """Blocks come in bursts of three steps and never return; four are steady. A count cannot tell them apart."""
    steady = [n for n in range(4) for _ in range(2)]
    burst = [1000 + step // 2 * 10 + n for n in range(3) for _ in range(4)]
    return steady + burst


def feed(policy: HeatFreshness, trainer: LSTMTrainer, steps: int, uses_of: object) -> None:
    assert callable(uses_of)
    for step in range(steps):
        uses = uses_of(step)
        random.Random(step).shuffle(uses)
        for n in uses:
            policy.drop(make_key(n))  # a block may well be stored anew each time: its uses count all the same
            policy.add(make_key(n), Facts(1), float(step))
        trainer.step()


def test_what_can_be_learned_is_and_reaches_the_policy() -> None:
    policy = HeatFreshness(events=20 * SEQUENCE, seconds=1e6)
    trainer = LSTMTrainer(policy)
    feed(policy, trainer, 60, bursts)
    report = trainer.report()
    assert report["trusted"] == 1.0
    assert report["forecast_error"] < 0.7 * report["window_error"]
    assert report["forecast_missed"] <= report["window_missed"]
    steady, burst = (policy.explain(make_key(n), 60.0) for n in (0, 1000 + 28 * 10))
    assert steady["forecast"] > burst["forecast"]
    trainer.stop()
    assert policy.explain(make_key(0), 60.0)["forecast"] == policy.explain(make_key(0), 60.0)["uses"]


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
    feed(policy, trainer, 40, lambda step: [n for n in range(5) for _ in range(n + 2)])
    assert trainer.report()["window_error"] == 0.0
    assert trainer.report()["trusted"] == 0.0
    assert all(
        policy.explain(make_key(n), 40.0)["forecast"] == policy.explain(make_key(n), 40.0)["uses"] for n in range(5)
    )


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
