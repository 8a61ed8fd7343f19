"""Sample rate conversion: a Kaiser-windowed sinc as a polyphase filter, in float64 with numpy alone.

Source: R. E. Crochiere and L. R. Rabiner, Multirate Digital Signal Processing, 1983. Own code rather than a
library's, because the result enters keys: it may change with `RESAMPLER` only.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

RESAMPLER = "mmcache-sinc-1"
"""Name and version, as it stands in signatures."""

_ZEROS = 16
"""Zero crossings of the sinc on each side."""
_BETA = 8.0
"""Kaiser window: ≈ 80 dB stop band."""
_LARGEST_RATIO = 1 << 15


def resample(signal: npt.NDArray[Any], rate: int, target: int) -> npt.NDArray[Any]:
    """(samples,) at `rate` Hz → (ceil(samples × target / rate),) float64 at `target` Hz; itself when equal.

    Rates whose reduced ratio is above 32 768 are rounded to one that is not (an error below 0.01 % of the rate).
    """
    if rate == target:
        return signal
    up, down = target // gcd(rate, target), rate // gcd(rate, target)
    while max(up, down) > _LARGEST_RATIO:
        up, down = max(1, up // 2), max(1, down // 2)
    divisor = gcd(up, down)
    up, down = up // divisor, down // divisor
    taps = _taps(up, down)
    width = taps.shape[1]
    half = width // 2
    count = -(-len(signal) * up // down)
    padded = np.pad(signal.astype(np.float64), (half, half + 1 + down))
    windows = np.lib.stride_tricks.sliding_window_view(padded, width)
    found = np.empty(count)
    for first in range(min(up, count)):  # outputs first, first + up, … share a phase
        place, phase = divmod(first * down, up)
        mine = found[first::up]
        mine[:] = windows[place::down][: len(mine)] @ taps[phase]
    return found


@lru_cache(maxsize=32)
def _taps(up: int, down: int) -> npt.NDArray[np.float64]:
    """(up, width): the filter's value at each input sample of the window, by phase; each row sums to 1."""
    stretch = max(1.0, down / up)  # when the rate falls, the filter widens so that nothing aliases
    half = int(np.ceil(_ZEROS * stretch))
    offsets = np.arange(-half, half + 1)[None, :] - np.arange(up)[:, None] / up
    place = offsets / stretch
    window = np.i0(_BETA * np.sqrt(np.clip(1 - (place / (_ZEROS + 1)) ** 2, 0, None)))
    taps: npt.NDArray[np.float64] = np.sinc(place) * window
    taps /= taps.sum(axis=1, keepdims=True)
    return taps
