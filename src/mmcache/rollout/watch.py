"""`Watch`: one process's view of a rollout's state: read seldom, kept while nobody answers, put back where it was lost.

A record can be lost: a server was restarted without a disk, evicted it, or failed over before its replica had the last
change. Whoever knows a later state of the same record puts it back, by compare-and-set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mmcache.forks import Lock
from mmcache.model.clock import Clock
from mmcache.model.errors import FormatVersionError, RolloutError, TierError
from mmcache.rollout.board import DAMAGED
from mmcache.rollout.records import Records
from mmcache.rollout.state import State, decode
from mmcache.rollout.state import first as first_state


class Watch:
    """Never raises: what goes wrong is said once, and the last known state goes on."""

    def __init__(
        self,
        name: str,
        first: str,
        records: Records,
        *,
        clock: Clock,
        say: Callable[[str], None],
        spare: Records | None = None,
    ) -> None:
        """`first`: what is stable where nobody knows better. `spare`: remembers what `records` said, for a process
        that starts while these cannot be reached."""
        self._name, self._records, self._spare, self._clock = name, records, spare, clock
        self._say, self._said = say, ""
        self._lock = Lock()
        self._held: tuple[str, int] | None = None
        """The trial that this process has put on hold, whether or not it could tell the others."""
        self._reason = ""
        self._lacking: tuple[str, int] | None = None
        self._due = float("-inf")
        self.reachable = False
        """Whether the last look was answered."""
        self._state = State(stable=first)

    @property
    def due(self) -> bool:
        """Whether `state()` will look, which may take a server's time limit."""
        return self._clock.monotonic() >= self._due

    def state(self) -> State:
        """At most `look_every` seconds old, where the records can be reached."""
        now = self._clock.monotonic()
        if now >= self._due:
            due = now + self._records.look_every
            if self._records.waits and due < self._due + 2 * self._records.look_every:
                self._due = due  # first: others need not wait for this look, unless what they know is older than that
            self.look()
            self._due = max(self._due, due)
        return self._state

    def look(self) -> None:
        """Look now."""
        if not self._state.born:
            self._remember()  # first: the server may have lost what the folder has
        try:
            self._take(self._records.read(self._name))
            self.reachable = True
        except TierError as error:
            if self.reachable or not self._said:  # once an outage, whatever its messages are
                self._tell(f"its state cannot be read or written, the last known one goes on: {error}")
            self.reachable = False
        except FormatVersionError as error:
            self._tell(str(error))

    def hold(self, state: State, reason: str) -> None:
        """Give the candidate of `state` no more traffic: here at once, elsewhere at the next look."""
        self._held, self._reason = (state.born, state.trial), reason
        self._due = float("-inf")

    def off(self, state: State) -> bool:
        """Whether this process has put the candidate of `state` on hold."""
        return self._held == (state.born, state.trial)

    def lacks(self, state: State, version: str, known: Iterable[str]) -> None:
        """Say, once a revision, that this program has no such version."""
        if self._lacking != (state.born, state.revision):
            self._lacking = (state.born, state.revision)
            self._say(
                f"this program has no {version}, only {', '.join(known)}: it stays on what it has; deploy the new one"
            )

    def _take(self, raw: bytes | None) -> None:
        known = self._state
        if raw is None:
            fresh = known if known.born else first_state(known.stable, self._clock.wall())
            if self._records.swap(self._name, None, fresh.encode(), patience=0.0):
                if known.born:
                    self._tell("its state was lost and is put back")
                self._adopt(fresh)
            return
        try:
            found = decode(raw)
        except RolloutError as error:
            self._set_aside(raw, error)
            return
        if known.follows(found) and self._records.swap(self._name, raw, known.encode(), patience=0.0):
            self._tell("its last change was lost and is put back")
            return
        if self.off(found) and found.trying:
            held = found.held(self._reason, self._clock.wall())
            if self._records.swap(self._name, raw, held.encode(), patience=0.0):
                found = held
        self._adopt(found)

    def _set_aside(self, raw: bytes, error: RolloutError) -> None:
        known = self._state
        fresh = known if known.born else first_state(known.stable, self._clock.wall())
        aside = self._name + DAMAGED
        self._records.swap(aside, self._records.read(aside), raw, patience=0.0)
        if self._records.swap(self._name, raw, fresh.encode(), patience=0.0):
            self._tell(f"{error}; it is kept as {aside}, and {fresh.stable} goes on as stable")
            self._adopt(fresh)

    def _adopt(self, found: State) -> None:
        with self._lock:
            if self._state.follows(found) or found == self._state:
                return
            self._state = found
        if self._spare is not None:
            try:
                self._spare.swap(self._name, self._spare.read(self._name), found.encode(), patience=0.0)
            except TierError as error:
                self._tell(f"its state could not be remembered: {error}")

    def _remember(self) -> None:
        if self._spare is None:
            return
        try:
            raw = self._spare.read(self._name)
            if raw is not None:
                self._state = decode(raw)
        except (TierError, RolloutError, FormatVersionError) as error:
            self._tell(f"what was remembered of its state cannot be read: {error}")

    def _tell(self, message: str) -> None:
        if message != self._said:
            self._said = message
            self._say(message)
