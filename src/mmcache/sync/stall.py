"""How long changes may go unheard: while the broker or the connector is silent, rows change and nobody says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mmcache.sync.positions import Partition


class Stall:
    """Says when it is time to move everything, because it has not been known for so long that nothing was missed.

    It aims at what the broker had at one moment: once all of that is applied, nothing from before then is missing.
    """

    def __init__(self, seconds: float | None, monotonic: Callable[[], float]) -> None:
        """seconds: most that something old may be served; None = as long as the silence lasts."""
        self._seconds, self._monotonic = seconds, monotonic
        self._known = monotonic()
        self._sure = float("-inf")
        self._aim: tuple[float, Mapping[Partition, int]] | None = None
        self._heartbeat: float | None = None
        self.count = 0
        """How often everything was moved for that."""

    def see(
        self, ends: Mapping[Partition, int], offsets: Mapping[Partition, int], heartbeat: float | None
    ) -> None:  # fmt: skip
        """The broker answers. ends: what it has of each partition that is read; offsets: what is applied; heartbeat:
        the connector's last; None = they are not read. Where they are, only a new one proves anything.
        """
        if self._aim is not None and all(offsets.get(place, 0) >= end for place, end in self._aim[1].items()):
            self._sure = max(self._sure, self._aim[0])
            if heartbeat is None or heartbeat != self._heartbeat:
                self._known = max(self._known, self._aim[0])
                self._heartbeat = heartbeat
            self._aim = None
        if self._aim is None:
            self._aim = self._monotonic(), ends

    def lose(self) -> None:
        """The broker does not answer, or may be another one."""
        self._aim = None

    def behind(self) -> float:
        """Seconds: what the broker had that is older is applied, or out of reach. At the start nothing is."""
        return self._monotonic() - self._sure

    def due(self) -> bool:
        """Whether everything must move."""
        return self._seconds is not None and self._monotonic() - self._known > self._seconds

    def moved(self) -> None:
        """It has: what is served from now on is no older than now."""
        self.count += 1
        self._known = self._sure = self._monotonic()
