"""What happened in the last so many seconds: a sum over a window that slides, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field

PIECES = 30
"""Of a window: what comes within the same piece is added up, so that memory does not grow with the number of looks."""


@dataclass
class Window:
    """Sums of an amount over the last `seconds`, which is given with each call so that a user can change it."""

    pieces: list[tuple[float, float, float]] = field(default_factory=list)
    """(end, seconds covered, amount), oldest first; at most `PIECES` + 2."""

    def add(self, at: float, covered: float, amount: float, seconds: float) -> None:
        """`amount` came in the `covered` seconds up to `at`, which is not before the last one's."""
        if self.pieces:
            end, length, sum = self.pieces[-1]
            if at - end + length <= seconds / PIECES:
                self.pieces[-1] = (at, length + covered, sum + amount)
                covered = amount = 0.0
        if covered > 0:
            self.pieces.append((at, covered, amount))
        self.trim(at, seconds)

    def trim(self, at: float, seconds: float) -> None:
        """Forget what is older than the window; of a piece that is half outside, half is forgotten."""
        begin = at - seconds
        kept = [piece for piece in self.pieces if piece[0] > begin]
        if kept:
            end, length, sum = kept[0]
            inside = min(length, end - begin)
            # The latest piece may be longer than the window where looks are rare: then it is all that is known.
            if inside < length and len(kept) > 1:
                kept[0] = (end, inside, sum * inside / length)
        self.pieces = kept[-PIECES - 2 :]

    def shift(self, seconds: float) -> None:
        """The clock was set: all of it happened so much later."""
        self.pieces = [(end + seconds, length, sum) for end, length, sum in self.pieces]

    @property
    def covered(self) -> float:
        """Seconds of the window that were watched."""
        return sum(length for _, length, _ in self.pieces)

    @property
    def amount(self) -> float:
        """In the seconds that were watched."""
        return sum(amount for _, _, amount in self.pieces)

    @property
    def rate(self) -> float:
        """A second; 0.0 where nothing was watched."""
        covered = self.covered
        return self.amount / covered if covered > 0 else 0.0

    def latest(self, seconds: float) -> float:
        """The rate of at least the last so many seconds, where so many were watched."""
        covered = amount = 0.0
        for _, length, sum in reversed(self.pieces):
            covered, amount = covered + length, amount + sum
            if covered >= seconds:
                break
        return amount / covered if covered > 0 else 0.0
