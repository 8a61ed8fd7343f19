"""How hot is a key? What is asked of it, and what models look at when they are asked.

    attention = α · H(text attention) ± β · KL(text attention ‖ image attention)
    score     = log2(1 + heat) + γ · attention

Text attention: where in the block the words of the request look. Image attention: where the same model looks when
nothing is asked. As published (α = 0.7, β = 0.3) a larger divergence makes hotter, though its text says colder: the
sign is a setting. Pure: numbers in, numbers out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mmcache.hotkeys.attention import Floats, distributions, on_common_support, pooled
from mmcache.model.errors import InvalidInputError, SettingsError

SMOOTHING = 1e-3
"""Share of the image attention that is spread evenly, so that no divergence is infinite."""


class Weights(NamedTuple):
    """What the parts count."""

    entropy: float = 0.7
    """α, a nat."""
    divergence: float = 0.3
    """β, a nat; as published. Negative: looking elsewhere than the picture draws the eye makes colder."""
    attention: float = 0.0
    """γ: doublings of heat that a unit of the attention's score is worth. 0, for it was not found to foresee what turns
    hot (table `hotkeys`)."""

    def checked(self) -> Weights:
        """Itself. Raises `SettingsError` for what is not finite."""
        if not all(map(math.isfinite, self)):
            raise SettingsError(f"weights of a hot-key score are finite, not {tuple(self)}")
        return self


PUBLISHED = Weights(0.7, 0.3, 1.0)
REVERSED = Weights(0.7, -0.3, 1.0)
"""As the publication's text has it."""


def entropy(rows: npt.ArrayLike) -> Floats:
    """float64 [...]: Shannon entropy in nats of each distribution in `rows` [..., n]: 0 … ln n; 0 · ln 0 is 0.

    Raises `InvalidInputError` for rows that are none (see `distributions`).
    """
    return _entropy(distributions(rows))


def _entropy(found: Floats) -> Floats:
    logs = np.log(found, out=np.zeros_like(found), where=found > 0)
    nats: Floats = np.maximum(-(found * logs).sum(axis=-1), 0.0)
    return nats


def divergence(rows: npt.ArrayLike, others: npt.ArrayLike, *, smoothing: float = SMOOTHING) -> Floats:
    """float64 [...]: Kullback-Leibler divergence in nats of each distribution in `rows` [..., n] from `others`.

    others: [m], or [..., m] that broadcasts; where m ≠ n, both are brought to a common support first (k places). Of
    both, `smoothing` (over 0, at most 1) is spread evenly (interpolation with the uniform distribution; Chen &
    Goodman, 1999), so that 0 ≤ KL ≤ ln(k / smoothing), and equal rows have exactly 0. Raises `InvalidInputError`.
    """
    if not 0 < smoothing <= 1:
        raise SettingsError(f"smoothing is a share over 0, at most 1, not {smoothing!r}")
    return _divergence(distributions(rows), distributions(others), smoothing)


def _divergence(rows: Floats, others: Floats, smoothing: float) -> Floats:
    ours, theirs = on_common_support(rows, others)
    even = smoothing / ours.shape[-1]
    ours, theirs = (1 - smoothing) * ours + even, (1 - smoothing) * theirs + even
    try:
        nats: Floats = np.maximum((ours * np.log(ours / theirs)).sum(axis=-1), 0.0)
    except ValueError as error:
        raise InvalidInputError(f"maps of shapes {ours.shape} and {theirs.shape} cannot be compared") from error
    return nats


def attention_score(entropies: npt.ArrayLike, divergences: npt.ArrayLike, weights: Weights = PUBLISHED) -> Floats:
    """float64, broadcast: α · entropies ± β · divergences, both in nats."""
    found: Floats = weights.entropy * np.asarray(entropies, np.float64) + weights.divergence * np.asarray(
        divergences, np.float64
    )
    return found


def hot_score(
    heat: npt.ArrayLike,
    entropies: npt.ArrayLike = np.nan,
    divergences: npt.ArrayLike = np.nan,
    weights: Weights = Weights(),  # noqa: B008 - a tuple
) -> Floats:
    """float64, broadcast: the live score. heat: decayed uses, 0 or more. NaN: no attention known, so heat alone.

    Raises `InvalidInputError` for heats that are negative or not finite.
    """
    warmth = np.asarray(heat, np.float64)
    if not np.isfinite(warmth).all() or (warmth < 0).any():
        raise InvalidInputError("heats are finite and 0 or more")
    attended = attention_score(entropies, divergences, weights)
    found: Floats = np.log2(1 + warmth) + weights.attention * np.where(np.isnan(attended), 0.0, attended)
    return found


class Attended(NamedTuple):
    """What cross-attentions over a key's block were like, in nats."""

    entropy: float
    """Of the text attention, mean over its rows."""
    divergence: float
    """Of the text attention's rows from the image attention, mean."""


def attended(text_attention: npt.ArrayLike, image_attention: npt.ArrayLike) -> Attended:
    """Of one request. text_attention: [..., n], a distribution a word (and head); image_attention: [..., m], pooled.

    n ≠ m: see `on_common_support`; grids have to be of one size. Raises `InvalidInputError` for rows that are no
    distributions.
    """
    text, image = distributions(text_attention), pooled(image_attention)
    return Attended(float(_entropy(text).mean()), float(_divergence(text, image, SMOOTHING).mean()))
