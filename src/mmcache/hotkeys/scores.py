"""`HotScores`: scores of keys whose attention was told, and of those where it was not."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import numpy.typing as npt

from mmcache.forks import Lock
from mmcache.hotkeys.score import Attended, Weights, attended
from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.model.key import Key

MOST_KEYS = 65_536
SHARE = 0.1


class Scored(NamedTuple):
    """A score and what it is made of."""

    score: float
    parts: dict[str, float]
    """`heat` (decayed uses); `entropy` and `divergence` (nats) where attention is known: a key without is scored by
    its heat alone."""


class _Known:
    __slots__ = ("divergence", "entropy", "told")

    def __init__(self) -> None:
        self.entropy = self.divergence = 0.0
        self.told = 0


class HotScores:
    """Keeps two numbers a key, never a map; of `most` keys, those told of last. Calls are O(1); threads may share it.

    weights: what the parts count. share: what a new attention counts against those before it; the first few count
    alike. tell: is told each entropy, `cache.attended`, so that policies that rank by it hear of the same attention.
    """

    def __init__(
        self,
        *,
        weights: Weights = Weights(),  # noqa: B008 - a tuple
        most: int = MOST_KEYS,
        share: float = SHARE,
        tell: Callable[[Key, float], object] | None = None,
    ) -> None:
        """Raises `SettingsError`."""
        if most < 1 or not 0 < share <= 1:
            raise SettingsError(f"needs most >= 1 and a share over 0, at most 1, not {most} and {share}")
        self.weights = weights.checked()
        self._most, self._share, self._tell = most, share, tell
        self._known: OrderedDict[Key, _Known] = OrderedDict()
        self._lock = Lock()

    def attended(self, key: Key, text_attention: npt.ArrayLike, image_attention: npt.ArrayLike) -> Attended:
        """Say where a model looked in `key`'s block: where the request's words did, and where it looks unasked.

        text_attention: [..., n] and image_attention: [..., m], each row along the last axis a distribution over the
        block's places (a picture's patches, a sound's frames); see `score.attended`. Raises `InvalidInputError` for
        rows that are none.
        """
        found = attended(text_attention, image_attention)
        self.note(key, *found)
        if self._tell is not None:
            self._tell(key, found.entropy)
        return found

    def note(self, key: Key, entropy: float, divergence: float) -> None:
        """As `attended`, for who has the two numbers (nats) already. Raises `InvalidInputError`."""
        if not (math.isfinite(entropy) and math.isfinite(divergence) and entropy >= 0 and divergence >= 0):
            raise InvalidInputError(f"entropy and divergence are finite nats, 0 or more, not {entropy}, {divergence}")
        with self._lock:
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = _Known()
                if len(self._known) > self._most:
                    self._known.popitem(last=False)
            else:
                self._known.move_to_end(key)
            known.told += 1
            share = max(self._share, 1 / known.told)
            known.entropy += share * (entropy - known.entropy)
            known.divergence += share * (divergence - known.divergence)

    def known(self, key: Key) -> Attended | None:
        """What its attention was like lately; None: nobody said."""
        with self._lock:
            known = self._known.get(key)
            return None if known is None else Attended(known.entropy, known.divergence)

    def score(self, key: Key, heat: float) -> Scored:
        """The score of a key that has `heat` decayed uses: `score.hot_score` of one, without arrays.

        Raises `InvalidInputError` for a heat that is negative or not finite.
        """
        if not (math.isfinite(heat) and heat >= 0):
            raise InvalidInputError(f"a heat is finite and 0 or more, not {heat}")
        value, known = math.log2(1 + heat), self.known(key)
        if known is None:
            return Scored(value, {"heat": heat})
        per_entropy, per_divergence, per_attention = self.weights
        value += per_attention * (per_entropy * known.entropy + per_divergence * known.divergence)
        return Scored(value, {"heat": heat, "entropy": known.entropy, "divergence": known.divergence})

    def forget(self, key: Key) -> None:
        """Its block is gone."""
        with self._lock:
            self._known.pop(key, None)

    def __len__(self) -> int:
        """Keys whose attention is known."""
        return len(self._known)
