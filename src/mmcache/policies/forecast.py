"""A forecast of uses without a training library: an LSTM in numpy.

What trains it is `mmcache.learn`; what is forecast reaches a policy by `HeatFreshness.foresee`.
"""

from __future__ import annotations

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
