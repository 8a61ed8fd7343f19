"""`LifeModel`: the probability that a key is still hot after 24 and after 72 hours, in numpy.

Text, image hash and the series of uses meet in a gated convolution over time (tanh ⊙ sigmoid, as in WaveNet: van den
Oord et al., 2016; conditioned on what the key is about), an LSTM of 128 reads that (Hochreiter and Schmidhuber, 1997),
and a dense layer, which sees the series directly too, says two logits. They are made probabilities by isotonic curves
fitted on later time than the weights (Zadrozny and Elkan, KDD 2002). What trains it is `mmcache.learn`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcache.lifespan.inputs import BITS, CHANNELS, IMAGE, MOST_GROUPS, OWN, TEXT, Floats, LifeInputs, LifeScale
from mmcache.model.errors import InvalidInputError

HIDDEN = 128
"""Of the LSTM."""
CONVOLVED = 32
KERNEL, STRIDE = 4, 2
ABOUT = 32
"""What the key is about, as the gates see it."""
MOST_WIDTH = 4096
"""Of a text embedding."""
MOST_KNOTS = 64
DIRECT = (OWN, TEXT, IMAGE)
"""Channels that the dense layer sees."""
LEAST_COUNTS = 200
"""Uses or keys that a histogram must have: of fewer, chance alone makes it differ."""
HEAT_BINS = 8
"""Of the histogram of uses a key and day: 1, 2, 3–4, 5–8, …"""


def shapes(scale: LifeScale, width: int) -> dict[str, tuple[int, ...]]:
    """Of all weights, by name, for text embeddings of `width`."""
    return {
        "about.text": (ABOUT, width),
        "about.image": (ABOUT, BITS),
        "about.bias": (ABOUT,),
        "convolve.series": (2 * CONVOLVED, CHANNELS * KERNEL),
        "convolve.about": (2 * CONVOLVED, ABOUT),
        "convolve.bias": (2 * CONVOLVED,),
        "lstm.inputs": (4 * HIDDEN, CONVOLVED),
        "lstm.recurrent": (4 * HIDDEN, HIDDEN),
        "lstm.bias": (4 * HIDDEN,),
        "dense.hidden": (2, HIDDEN),
        "dense.direct": (2, len(DIRECT) * scale.intervals),
        "dense.bias": (2,),
    }


def steps(scale: LifeScale) -> int:
    """How many steps the LSTM reads."""
    return -(-scale.intervals // STRIDE)


def windows(series: Floats) -> Floats:
    """[n, C, L] → [n, steps, C · KERNEL]: what each step of the convolution sees, the last one ends with the last
    interval; zeros before the first."""
    n, channels, length = series.shape
    count = -(-length // STRIDE)
    padded = np.zeros((n, channels, (count - 1) * STRIDE + KERNEL), np.float32)
    padded[:, :, padded.shape[2] - length :] = series
    seen = np.lib.stride_tricks.sliding_window_view(padded, KERNEL, axis=2)[:, :, ::STRIDE]
    return np.ascontiguousarray(seen.transpose(0, 2, 1, 3)).reshape(n, count, channels * KERNEL)


def _sigmoid(x: Floats) -> Floats:
    half: Floats = np.float32(0.5) * (np.tanh(np.float32(0.5) * x) + np.float32(1.0))
    return half


@dataclass(frozen=True)
class Calibration:
    """Two isotonic curves, logit → probability, linear between knots."""

    logits: Floats
    """float32 [2, k], not falling."""
    shares: Floats
    """float32 [2, k], not falling, 0…1."""

    def probability(self, logits: Floats) -> Floats:
        """float32 [n, 2] → [n, 2]."""
        near, far = (np.interp(logits[:, h], self.logits[h], self.shares[h]) for h in (0, 1))
        return np.stack([near, far], axis=1).astype(np.float32)


@dataclass(frozen=True)
class LifeModel:
    """Immutable; safe to share between threads. Raises `InvalidInputError` where its parts do not fit together."""

    scale: LifeScale
    weights: Mapping[str, Floats]
    """See `shapes`."""
    calibration: Calibration
    text_groups: Floats
    """float32 [K, width]: centres of what texts are about, of norm 1; K may be 0."""
    image_groups: Floats
    """float32 [K, 64]; K may be 0."""
    baseline: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    """What inputs were like in training: uses by text group, by image group (`text`, `image`), and keys by uses a day
    (`heat`), one histogram each."""
    tolerances: Mapping[str, float] = field(default_factory=dict)
    """By name of a histogram: from which KL on, in nats, a day is unlike the training's."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What the training says of itself. Free text."""

    def __post_init__(self) -> None:
        wanted = shapes(self.scale, self.width)
        if not 1 <= self.width <= MOST_WIDTH or set(self.weights) != set(wanted):
            raise InvalidInputError(f"a model of lifetimes has the weights {', '.join(wanted)}")
        arrays: list[tuple[str, Any, tuple[int, ...]]] = [
            (name, self.weights[name], shape) for name, shape in wanted.items()
        ]
        knots = self.calibration.logits.shape[-1] if self.calibration.logits.ndim else 0
        if not 1 <= knots <= MOST_KNOTS or max(len(self.text_groups), len(self.image_groups)) > MOST_GROUPS:
            raise InvalidInputError("a model of lifetimes with more knots or groups than are allowed, or none")
        arrays += [("calibration", part, (2, knots)) for part in (self.calibration.logits, self.calibration.shares)]
        arrays += [("text groups", self.text_groups, (len(self.text_groups), self.width))]
        arrays += [("image groups", self.image_groups, (len(self.image_groups), BITS))]
        for name, array, shape in arrays:
            if array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all():
                raise InvalidInputError(f"{name} of a model of lifetimes should be finite float32 {list(shape)}")
        shares = self.calibration.shares
        if any((np.diff(part) < 0).any() for part in (shares, self.calibration.logits)) or not (
            (shares >= 0).all() and (shares <= 1).all()
        ):
            raise InvalidInputError("calibration curves rise from 0 to 1")
        for name, counts in self.baseline.items():
            if counts.ndim != 1 or counts.dtype != np.int64 or not len(counts) or (counts < 0).any():
                raise InvalidInputError(f"the baseline {name!r} is no histogram")
        if not all(0 < nats < math.inf for nats in self.tolerances.values()):
            raise InvalidInputError("tolerances of a model of lifetimes are numbers of nats above 0")

    @property
    def width(self) -> int:
        """Of the text embeddings that it takes."""
        return int(self.text_groups.shape[-1])

    def after(self, before: LifeModel) -> LifeModel:
        """The same, with no tolerance above that of the model `before` it: what was learned from a history in which the
        world changed takes changes for what is usual."""
        least = {name: min(nats, before.tolerances.get(name, nats)) for name, nats in self.tolerances.items()}
        return replace(self, tolerances=least)

    def about(self, text: Floats, image: Floats) -> Floats:
        """float32 [n, ABOUT]: all that is needed of what a key is about, whatever it was used like."""
        weights = self.weights
        mixed = text @ weights["about.text"].T + image @ weights["about.image"].T + weights["about.bias"]
        found: Floats = np.tanh(mixed)
        return found

    def logits(self, series: Floats, about: Floats) -> Floats:
        """float32 [n, 2], from `LifeInputs.series` and `about`."""
        weights = self.weights
        seen = windows(series) @ weights["convolve.series"].T
        seen += (about @ weights["convolve.about"].T + weights["convolve.bias"])[:, None]
        gated = np.tanh(seen[:, :, :CONVOLVED]) * _sigmoid(seen[:, :, CONVOLVED:])
        driven = gated @ weights["lstm.inputs"].T + weights["lstm.bias"]
        hidden = np.zeros((len(series), HIDDEN), np.float32)
        cell = np.zeros_like(hidden)
        recurrent = np.ascontiguousarray(weights["lstm.recurrent"].T)
        for step in range(driven.shape[1]):
            gates = driven[:, step] + hidden @ recurrent
            let_in, keep, new, out = (gates[:, HIDDEN * gate : HIDDEN * (gate + 1)] for gate in range(4))
            cell = _sigmoid(keep) * cell + _sigmoid(let_in) * np.tanh(new)
            hidden = _sigmoid(out) * np.tanh(cell)
        direct = series[:, DIRECT].reshape(len(series), -1)
        found: Floats = hidden @ weights["dense.hidden"].T + direct @ weights["dense.direct"].T + weights["dense.bias"]
        return found

    def probability(self, inputs: LifeInputs) -> Floats:
        """float32 [n, 2]: calibrated P(hot after each horizon)."""
        return self.calibration.probability(self.logits(inputs.series, self.about(inputs.text, inputs.image)))


def heat_histogram(uses: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """int64 [HEAT_BINS]: keys by their uses within a day, in powers of two; keys without a use are left out."""
    used = np.asarray(uses)
    bins = np.ceil(np.log2(np.maximum(used[used > 0], 1))).astype(np.int64)
    return np.bincount(np.minimum(bins, HEAT_BINS - 1), minlength=HEAT_BINS)
