"""Early refresh: who finds a block shortly before its end computes it anew, with a chance that grows towards the end.

"XFetch" of Vattani, Chierichetti and Lowenstein, "Optimal probabilistic cache stampede prevention" (VLDB 2015). Pure:
the drawn number is an argument.
"""

from __future__ import annotations

import math

RAREST = 1e-6
"""`window` leaves out what would be drawn more rarely than this."""


def early(deadline: float, cost: float, beta: float, now: float, draw: float) -> bool:
    """Whether to refresh at `now` (monotonic seconds) a block that ends at `deadline` and takes `cost` s to compute.

    `draw` is uniform in 0…1. `beta` above 1 refreshes earlier, below 1 later.
    """
    return now - cost * beta * math.log(max(draw, RAREST)) >= deadline


def window(cost: float, beta: float) -> float:
    """Seconds before the deadline from which `early` may say yes; before that no draw can."""
    return -cost * beta * math.log(RAREST)
