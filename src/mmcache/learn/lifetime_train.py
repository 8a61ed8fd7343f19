"""Train the network of `lifespan.model` with torch: the same sums as there, and slopes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmcache.learn.lifetime_history import Examples
from mmcache.lifespan.inputs import IMAGE, TEXT, Floats, LifeScale
from mmcache.lifespan.model import CONVOLVED, DIRECT, HIDDEN, shapes, windows
from mmcache.model.errors import SettingsError

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Recipe:
    """How to train."""

    examples: int = 16_000
    """Most that are drawn from the span to train on."""
    passes: int = 4
    """Over all examples."""
    batch: int = 256
    rate: float = 2e-3
    """Of Adam, falling to nothing along a cosine."""
    decay: float = 1e-3
    """Of weights, each step, times the rate."""
    forget: float = 0.5
    """Share of examples whose text, and of those whose image is taken away, so that it copes without."""
    truncated: float = 0.3
    """Share of cuts that are seen as by who began to count only lately."""
    groups: int = 16
    """Most, of texts and of images."""


def train(
    examples: Examples,
    scale: LifeScale,
    recipe: Recipe,
    *,
    seed: int = 0,
    start: Mapping[str, Floats] | None = None,
    progress: Progress | None = None,
) -> dict[str, Floats]:
    """Weights for `LifeModel`, by name. The same input and seed give the same weights, on one machine.

    start: weights to go on from. Raises `SettingsError` where torch is missing.
    """
    try:
        import torch
    except ImportError as error:
        raise SettingsError("training a model of lifetimes needs torch: pip install 'mmcache[learn]'") from error
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the matrices are small; and sums are in one order
    try:
        return Training(torch, examples, scale, recipe, seed, start).run(progress)
    finally:
        torch.set_num_threads(before)


class Training:
    """One training; `logits` is the twin of `LifeModel.logits`."""

    def __init__(
        self,
        torch: Any,
        examples: Examples,
        scale: LifeScale,
        recipe: Recipe,
        seed: int,
        start: Mapping[str, Floats] | None,
    ) -> None:
        self._torch, self._recipe, self._examples, self._scale = torch, recipe, examples, scale
        self._draw = np.random.default_rng([seed, 7])
        wanted = shapes(scale, examples.inputs.text.shape[1])
        made = _begin(wanted, self._draw) if start is None else {name: np.array(start[name]) for name in wanted}
        self.weights = {name: torch.from_numpy(array).requires_grad_() for name, array in made.items()}

    def run(self, progress: Progress | None) -> dict[str, Floats]:
        """All passes; the weights then."""
        torch, recipe = self._torch, self._recipe
        count = len(self._examples.labels)
        batches = max(1, count // recipe.batch)
        total = recipe.passes * batches
        adam, done = _Adam(torch, list(self.weights.values())), 0
        for _ in range(recipe.passes):
            order = self._draw.permutation(count)
            for batch in np.array_split(order, batches):
                slopes = torch.autograd.grad(self._loss(batch), adam.parameters)
                adam.step(slopes, recipe.rate * 0.5 * (1 + float(np.cos(np.pi * done / total))))
                done += 1
            if progress is not None:
                progress("training", done, total)
        return {name: np.ascontiguousarray(one.detach().numpy(), np.float32) for name, one in self.weights.items()}

    def _loss(self, rows: Any) -> Any:
        torch, recipe = self._torch, self._recipe
        inputs = self._examples.inputs.of(rows)
        shown, text, image = inputs.series.copy(), inputs.text.copy(), inputs.image.copy()
        for part, channel in ((text, TEXT), (image, IMAGE)):
            gone = self._draw.random(len(rows)) < recipe.forget
            part[gone] = 0.0
            shown[gone, channel] = 0.0
        logits = self.logits(shown, text, image)
        wanted = torch.from_numpy(self._examples.labels[rows].astype(np.float32))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted)
        for name, one in self.weights.items():
            if not name.endswith("bias"):
                loss = loss + recipe.decay * one.square().sum()
        return loss

    def logits(self, shown: Floats, text: Floats, image: Floats) -> Any:
        """[n, 2]; the twin of `LifeModel.logits`."""
        torch, weights = self._torch, self.weights
        about = torch.tanh(
            torch.from_numpy(text) @ weights["about.text"].T
            + torch.from_numpy(image) @ weights["about.image"].T
            + weights["about.bias"]
        )
        seen = torch.from_numpy(windows(shown)) @ weights["convolve.series"].T
        seen = seen + (about @ weights["convolve.about"].T + weights["convolve.bias"])[:, None]
        gated = torch.tanh(seen[:, :, :CONVOLVED]) * torch.sigmoid(seen[:, :, CONVOLVED:])
        zeros = torch.zeros(1, len(shown), HIDDEN)
        lstm = [weights[f"lstm.{name}"] for name in ("inputs", "recurrent", "bias")]
        states, _, _ = torch.lstm(
            gated, (zeros, zeros), [*lstm, torch.zeros(4 * HIDDEN)], True, 1, 0.0, True, False, True
        )  # fmt: skip
        direct = torch.from_numpy(np.ascontiguousarray(shown[:, DIRECT].reshape(len(shown), -1)))
        return states[:, -1] @ weights["dense.hidden"].T + direct @ weights["dense.direct"].T + weights["dense.bias"]


class _Adam:
    """Adam (Kingma and Ba, ICLR 2015), slopes clipped to a norm of 1. `torch.optim` does the same, but loads torch's
    compiler, which takes longer than a small training."""

    def __init__(self, torch: Any, parameters: list[Any]) -> None:
        self._torch, self.parameters = torch, parameters
        self._means = [torch.zeros_like(one) for one in parameters]
        self._squares = [torch.zeros_like(one) for one in parameters]
        self._updates = 0

    def step(self, slopes: Any, rate: float) -> None:
        self._updates += 1
        shorten = 1.0 / max(1.0, sum(float(slope.pow(2).sum()) for slope in slopes) ** 0.5)
        with self._torch.no_grad():
            for one, slope, mean, square in zip(self.parameters, slopes, self._means, self._squares, strict=True):
                mean.mul_(0.9).add_(slope, alpha=0.1 * shorten)
                square.mul_(0.999).addcmul_(slope, slope, value=0.001 * shorten * shorten)
                size = (square / (1.0 - 0.999**self._updates)).sqrt_().add_(1e-8)
                one.addcdiv_(mean, size, value=-rate / (1.0 - 0.9**self._updates))


def _begin(wanted: Mapping[str, tuple[int, ...]], draw: np.random.Generator) -> dict[str, Floats]:
    """Uniform by fan-in (LeCun et al., 1998); biases 0, but the LSTM keeps at first (Jozefowicz et al., ICML 2015)."""
    made: dict[str, Floats] = {}
    for name, shape in wanted.items():
        if name.endswith("bias"):
            made[name] = np.zeros(shape, np.float32)
            continue
        bound = 0.0 if name == "dense.direct" else shape[-1] ** -0.5
        made[name] = draw.uniform(-bound, bound, shape).astype(np.float32)
    made["lstm.bias"][HIDDEN : 2 * HIDDEN] = 1.0
    return made
