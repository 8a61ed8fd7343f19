"""A forecast of uses without a training library: an LSTM in numpy, and the judge of whether it is any better.

What trains it is `mmcache.learn`; what is forecast reaches a policy by `HeatFreshness.foresee`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError

Floats = npt.NDArray[np.float32]

SEQUENCE = 8
"""Steps that a forecast looks back; each is an eighth of a window, so that it sees exactly one window."""
LARGEST = 12.0
"""A forecast is at most e to this many uses."""


def _sigmoid(x: Floats) -> Floats:
    half: Floats = np.float32(0.5) * (np.tanh(np.float32(0.5) * x) + np.float32(1.0))
    return half


@dataclass(frozen=True)
class LSTMWeights:
    """One LSTM layer and one dense unit (Hochreiter and Schmidhuber, "Long short-term memory", 1997).

    Gates lie in the order input, forget, cell, output; `H` is the size of the layer. Raises `InvalidInputError` where
    shapes do not fit together or a number is not finite.
    """

    inputs: Floats
    """float32 [4H, 1]."""
    recurrent: Floats
    """float32 [4H, H]."""
    bias: Floats
    """float32 [4H]."""
    dense: Floats
    """float32 [H]."""
    dense_bias: float

    def __post_init__(self) -> None:
        size = self.dense.size
        shapes = {"inputs": (4 * size, 1), "recurrent": (4 * size, size), "bias": (4 * size,), "dense": (size,)}
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array.shape != shape or array.dtype != np.float32:
                raise InvalidInputError(f"{name} must be float32 {list(shape)}, not {array.dtype} {list(array.shape)}")
        if not all(np.isfinite(getattr(self, field.name)).all() for field in fields(self)):
            raise InvalidInputError("weights of a forecast must be finite; train it anew")

    def expected(self, counts: Floats) -> Floats:
        """Uses per step, float32 [n, SEQUENCE], oldest first → uses expected within the next window, float32 [n]."""
        size = self.dense.size
        hidden = np.zeros((len(counts), size), np.float32)
        cell = np.zeros_like(hidden)
        for step in np.log1p(counts).T:
            gates = step[:, None] * self.inputs[:, 0] + hidden @ self.recurrent.T + self.bias
            let_in, keep, new, out = (gates[:, size * gate : size * (gate + 1)] for gate in range(4))
            cell = _sigmoid(keep) * cell + _sigmoid(let_in) * np.tanh(new)
            hidden = _sigmoid(out) * np.tanh(cell)
        found: Floats = np.exp(np.minimum(hidden @ self.dense + np.float32(self.dense_bias), np.float32(LARGEST)))
        return found


class Judge:
    """Whether a forecast beats the window, from what came true: every forecast is judged, before it is learned from.

    Two errors of each, smoothed over about `memory` verdicts (prequential: Dawid, "The prequential approach", 1984):

    * `error`: mean |ln(1 + expected) − ln(1 + actual)|;
    * `missed`: the share of the actual uses that fell on the half of the blocks which it ranked lower. This is what a
      cache loses by a wrong order; a forecast can be nearer to the truth on average and still rank worse.

    `better` only when neither error is the larger, after `patience` verdicts.
    """

    def __init__(self, memory: int = 16, patience: int = 8) -> None:
        self.memory = memory
        self.patience = patience
        self.verdicts = 0
        self._sums: dict[str, float] = {}

    def verdict(self, actual: Floats, forecast: Floats, window: Floats, recency: Floats) -> None:
        """All [n], a block each: actual uses; both expectations, made before; the larger `recency` was used later."""
        total = float(actual.sum())
        if not total:
            return
        found: dict[str, float] = {}
        for name, expected in (("forecast", forecast), ("window", window)):
            lower = np.lexsort((recency, expected))[: len(actual) // 2]
            found[f"{name}_error"] = float(np.abs(np.log1p(expected) - np.log1p(actual)).mean())
            found[f"{name}_missed"] = float(actual[lower].sum()) / total
        share = max(1.0 / self.memory, 1.0 / (self.verdicts + 1))
        self.verdicts += 1
        self._sums = {name: self._sums.get(name, 0.0) * (1 - share) + share * value for name, value in found.items()}

    @property
    def better(self) -> bool:
        """Whether the forecast may stand in for the window."""
        s = self._sums
        return (
            self.verdicts >= self.patience
            and s["forecast_error"] <= s["window_error"]
            and s["forecast_missed"] <= s["window_missed"]
        )

    def report(self) -> Mapping[str, float]:
        """The smoothed errors by name, and how many verdicts they come from."""
        return {"verdicts": float(self.verdicts), **self._sums}
