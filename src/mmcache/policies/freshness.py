"""Heat × freshness: how much a block is used lately, and how lately it was used."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.policies.ranked import Ranked, Tracked
from mmcache.policies.window import UseWindow

STEPS = 4
"""Steps of one use to which a forecast is rounded: blocks that round alike are ordered by their last use."""


class HeatFreshness(Ranked):
    """The lowest S = α · sigmoid(H) + (1 − α) · exp(−Δt / τ) goes first.

    Δt is the time since the last use. H = ln(uses ÷ mean uses), where uses are those of the block within the last
    `events` uses of any block that are no older than `seconds`, and the mean is over the blocks within that window. So
    sigmoid(H) = uses ÷ (uses + mean): 0 for a block that the window has forgotten, 1/2 for an average one, and it
    tells 2 uses from 4 where the sigmoid of a bare count would be flat.

    Exact at the moment when victims are wanted, for the price of one score for each distinct number of uses in the
    window (fewer than sqrt(2 · events)), however many blocks there are (see `Ranked`).

    tau: may be changed at any time; a fitted half-life h gives τ = h ÷ ln 2.
    forecast: see `foresee`; the trainer is `mmcache.learn.LSTMTrainer`.
    """

    def __init__(self, *, alpha: float = 0.7, tau: float = 3600.0, seconds: float = 300.0, events: int = 1000) -> None:
        """`tau` and `seconds` in seconds. Raises `SettingsError` for an alpha outside 0…1 or a time not above 0."""
        if not 0.0 <= alpha <= 1.0:
            raise SettingsError(f"alpha is a share from 0 to 1, not {alpha}")
        self.alpha = alpha
        self.tau = tau
        self.history: deque[tuple[Key, float]] | None = None
        """Every use is appended here as (key, now), where somebody set a queue: what a forecast learns from."""
        self._uses = UseWindow(events, seconds)
        self._foreseen: tuple[Key, ...] = ()
        self._until = math.inf
        self._offered: deque[Mapping[Key, float]] = deque(maxlen=1)  # whose ends are safe under threads
        super().__init__(self._rank, window=self._uses, group=self._level, least=self._least_of, parts=self._explained)

    @property
    def tau(self) -> float:
        """Seconds after which freshness is down to 1/e."""
        return self._tau

    @tau.setter
    def tau(self, seconds: float) -> None:
        if not (math.isfinite(seconds) and seconds > 0):
            raise SettingsError(f"tau is a finite number of seconds above 0, not {seconds}")
        self._tau = seconds

    @property
    def window(self) -> UseWindow:
        """Where the heat is counted."""
        return self._uses

    @property
    def blocks(self) -> int:
        """How many blocks it knows."""
        return len(self._blocks)

    def foresee(self, uses: Mapping[Key, float]) -> None:
        """A forecast: how often each key will be used within the next window. Empty = there is none.

        May be called from any thread: it is taken over at the next call of the policy. It corrects the counts that it
        finds then: uses that come later count as ever. Only keys within the window can be corrected, and only for
        `seconds`: a forecast that nobody renews is not believed for longer. `uses` must not change afterwards.
        """
        self._offered.append(uses)

    def _use(self, key: Key, block: Tracked, now: float) -> None:
        self._take_over()
        super()._use(key, block, now)
        if self.history is not None:
            self.history.append((key, self._now))

    def _advance(self, now: float) -> None:
        super()._advance(now)
        self._take_over()

    def _take_over(self) -> None:
        offered = self._offered.popleft() if self._offered else None
        if offered is None and self._now <= self._until:
            return
        for key in self._foreseen:
            self._correct(key, 0.0)
        self._foreseen = tuple(offered or ())
        self._until = self._now + self._uses.seconds if offered else math.inf
        for key, expected in (offered or {}).items():
            self._correct(key, expected - self._uses.uses(key))

    def _correct(self, key: Key, correction: float) -> None:
        block = self._blocks.get(key)
        if block is not None and block.uses and block.correction != correction:
            block.correction = correction
            self._place(key, block, self._level(block), block.slot)

    def _fell_out(self, key: Key, uses: int) -> None:
        if not uses and (block := self._blocks.get(key)) is not None:
            block.correction = 0.0
        super()._fell_out(key, uses)

    def _level(self, block: Tracked) -> int:
        """Expected uses in quarters; 0 for what the window has forgotten."""
        return round(STEPS * max(0.0, block.uses + block.correction)) if block.uses else 0

    def _heat(self, level: int) -> float:
        """The sigmoid of H."""
        uses = level / STEPS
        return uses / (uses + self._uses.mean)

    def _least_of(self, level: int, now: float) -> float:
        return self.alpha * self._heat(level)

    def _freshness(self, block: Tracked, now: float) -> float:
        return math.exp((block.last - now) / self._tau)

    def _rank(self, block: Tracked, now: float) -> float:
        return self.alpha * self._heat(block.group) + (1.0 - self.alpha) * self._freshness(block, now)

    def _explained(self, block: Tracked, now: float) -> dict[str, float]:
        return {
            "uses": float(block.uses),
            "forecast": block.uses + block.correction,
            "mean_uses": self._uses.mean,
            "heat": self._heat(block.group),
            "age": now - block.last,
            "freshness": self._freshness(block, now),
        }
