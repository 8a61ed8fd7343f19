"""The trainer of `HeatFreshness`: an LSTM learns from the policy's own uses, in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from mmcache.learn.duel import Duel
from mmcache.learn.history import History
from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.policies.forecast import LARGEST, SEQUENCE, Floats, LSTMWeights
from mmcache.policies.freshness import HeatFreshness

HIDDEN = 32
DROPOUT = 0.2
RATE = 0.01
"""Of Adam."""
BATCH = 256
BATCHES = 4
"""Batches learned each time."""
REMEMBERED = 32
"""Steps whose examples are learned from again."""
BACKLOG = 65_536
"""Uses that wait to be looked at; beyond it the oldest are lost."""


@dataclass(frozen=True)
class _Claim:
    """What was expected at the end of a step, until it can be judged."""

    due: int
    """The number of the step with which the window that it speaks of ends."""
    keys: tuple[Key, ...]
    forecast: Floats
    window: Floats


class LSTMTrainer:
    """Forecasts uses for a `HeatFreshness`, as long as that is better than its window.

        policy = HeatFreshness()
        with Cache(policy=policy) as cache, LSTMTrainer(policy):
            ...

    One LSTM layer of 32 over the last 8 steps (each an eighth of the policy's window), dropout 0.2, one dense unit: the
    logarithm of the uses expected within the next window. It is judged by what came true, then trained on it (Poisson
    likelihood, Adam), then asked again; see `Duel` for when its forecast reaches the policy. Uses are
    those the policy heard of: hits in memory too, which the cache's event stream leaves out. (A cache with `tenants`
    makes a policy for each tenant by name, so no trainer reaches those.)

    The policy itself only takes over finished numbers. `step` does all the work, and is what the thread calls; call
    it yourself where there must be no thread. Raises `SettingsError` where torch is missing.
    """

    def __init__(self, policy: HeatFreshness, *, period_seconds: float = 1.0, seed: int = 0) -> None:
        """`period_seconds`: how often the thread looks for new uses."""
        self.policy = policy
        self.duel = Duel(policy)
        self.period_seconds = period_seconds
        self.trusted = False
        """Whether the policy has a forecast of ours now."""
        window = policy.window
        self._history = History(window.passes // SEQUENCE, window.seconds / SEQUENCE)
        self._claims: deque[_Claim] = deque()
        self._steps = 0
        self._network = _Network(seed)
        self._uses: deque[tuple[Key, float]] = deque(maxlen=BACKLOG)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        policy.history = self._uses

    def step(self) -> int:
        """Look at the uses since the last call, and train where a step of the history ended; how many did.

        However many ended, it trains once: behind a busy cache it learns from less, and takes no more of the machine.
        """
        before = self._steps
        for _ in range(len(self._uses)):  # others append meanwhile: theirs are for the next call, which may be the last
            key, now = self._uses.popleft()
            for _ in self._history.use(key, now):
                self._step_ended()
            self.duel.use(key, now, self.policy.blocks)
        if self._steps > before:
            self._train()
        return self._steps - before

    def _step_ended(self) -> None:
        self._steps += 1
        self.duel.step_ended()
        while self._claims and self._claims[0].due <= self._steps:
            claim = self._claims.popleft()
            if claim.due == self._steps and claim.keys:
                self.duel.error(self._history.since(claim.keys), claim.forecast, claim.window)

    def _train(self) -> None:
        before = self._history.past(ago=SEQUENCE)
        if before is not None and before.keys:
            self._network.learn(before.counts, self._history.since(before.keys))
        now = self._history.past()
        if now is None:
            return
        expected = self._network.weights().expected(now.counts)
        self._claims.append(_Claim(self._steps + SEQUENCE, now.keys, expected, now.counts.sum(axis=1)))
        uses = dict(zip(now.keys, expected.tolist(), strict=True))
        self.duel.foresee(uses)
        if self.duel.better:
            self.policy.foresee(uses)
        elif self.trusted:
            self.policy.foresee({})
        self.trusted = self.duel.better

    def report(self) -> Mapping[str, float]:
        """Hit ratios and errors (see `Duel`), `trusted` (0 or 1), and `examples` learned from so far."""
        return {
            **self.duel.report(),
            "trusted": float(self.trusted),
            "examples": float(self._network.examples),
        }

    def start(self) -> None:
        """Work in a thread from now on. It ends with `stop`, or with the process."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="mmcache-lstm", daemon=True)
            self._thread.start()

    def use_one_core(self) -> None:
        """Let torch use one core in the calling thread, which is about to call `step`."""
        self._network.use_one_core()

    def _run(self) -> None:
        self.use_one_core()
        while not self._stop.wait(self.period_seconds):
            self.step()

    def stop(self) -> None:
        """End the thread; the policy goes back to its window."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
        self.policy.foresee({})
        self.trusted = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class _Network:
    """The torch side. Draws from a generator of its own: the program's random numbers are not touched."""

    def __init__(self, seed: int) -> None:
        try:
            import torch
        except ImportError as error:
            raise SettingsError("the LSTM forecast needs torch: pip install 'mmcache[learn]'") from error
        self._torch: Any = torch
        self._random = torch.Generator().manual_seed(seed)
        # Made on `meta`, because torch's own initial weights would come from the program's random numbers.
        self._lstm: Any = torch.nn.LSTM(1, HIDDEN, batch_first=True, device="meta").to_empty(device="cpu")
        self._dense: Any = torch.nn.Linear(HIDDEN, 1, device="meta").to_empty(device="cpu")
        self._parameters = [*self._lstm.parameters(), *self._dense.parameters()]
        with torch.no_grad():
            for parameter in self._parameters:
                parameter.uniform_(-(HIDDEN**-0.5), HIDDEN**-0.5, generator=self._random)
        self._means = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._updates = 0
        self._memory: deque[tuple[Floats, Floats]] = deque(maxlen=REMEMBERED)
        self.examples = 0

    def use_one_core(self) -> None:
        """Let torch use one core in the calling thread: more would wait for each other, and take them from the model.

        torch remembers the number for this thread, and as the default of threads that are yet to come; the second
        call, in a thread that ends with it, gives those their default back.
        """
        before = self._torch.get_num_threads()
        self._torch.set_num_threads(1)
        other = threading.Thread(target=self._torch.set_num_threads, args=(before,))
        other.start()
        other.join()

    def learn(self, counts: Floats, uses: Floats) -> None:
        """Counts [n, SEQUENCE] were followed by `uses` [n] within the next window."""
        torch = self._torch
        self._memory.append((counts, uses))
        self.examples += len(uses)
        inputs = torch.from_numpy(np.log1p(np.concatenate([one for one, _ in self._memory])))
        wanted = torch.from_numpy(np.concatenate([one for _, one in self._memory]))
        for _ in range(BATCHES):
            drawn = torch.randint(len(wanted), (min(BATCH, len(wanted)),), generator=self._random)
            states, _ = self._lstm(inputs[drawn].unsqueeze(-1))
            last = states[:, -1]
            kept = (torch.rand(last.shape, generator=self._random) >= DROPOUT) / (1.0 - DROPOUT)
            rate = self._dense(last * kept).squeeze(-1).clamp(max=LARGEST)
            loss = (rate.exp() - wanted[drawn] * rate).mean()
            self._update(torch.autograd.grad(loss, self._parameters))

    def _update(self, slopes: Sequence[Any]) -> None:
        """Adam (Kingma and Ba, ICLR 2015), slopes clipped to a norm of 1. `torch.optim` does the same, but
        loads torch's compiler: another second and 40 MB in a process that is there to serve."""
        self._updates += 1
        shorten = 1.0 / max(1.0, sum(float(slope.pow(2).sum()) for slope in slopes) ** 0.5)
        with self._torch.no_grad():
            for parameter, slope, mean, square in zip(
                self._parameters, slopes, self._means, self._squares, strict=True
            ):
                mean.mul_(0.9).add_(slope, alpha=0.1 * shorten)
                square.mul_(0.999).addcmul_(slope, slope, value=0.001 * shorten * shorten)
                size = (square / (1.0 - 0.999**self._updates)).sqrt_().add_(1e-8)
                parameter.addcdiv_(mean, size, value=-RATE / (1.0 - 0.9**self._updates))

    def weights(self) -> LSTMWeights:
        """What it knows now, for numpy."""
        lstm, dense = self._lstm, self._dense
        return LSTMWeights(
            inputs=lstm.weight_ih_l0.detach().numpy().copy(),
            recurrent=lstm.weight_hh_l0.detach().numpy().copy(),
            bias=(lstm.bias_ih_l0 + lstm.bias_hh_l0).detach().numpy().copy(),
            dense=dense.weight.detach().numpy()[0].copy(),
            dense_bias=float(dense.bias.detach()),
        )
