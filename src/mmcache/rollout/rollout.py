"""`Rollout`: several versions of one model behind one function. What `Cache.rollout` returns.

Each version is an encoder of its own signature, so blocks of two versions never meet; the one that loses ages out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from mmcache.encoder import Encoder
from mmcache.keys.content import ContentOptions
from mmcache.model.errors import SettingsError
from mmcache.model.event import Failed
from mmcache.model.signature import Signature
from mmcache.rollout.agreement import Compare, agreement
from mmcache.rollout.assignment import place, within
from mmcache.rollout.board import Board
from mmcache.rollout.places import places
from mmcache.rollout.records import Records
from mmcache.rollout.report import Counts
from mmcache.rollout.state import State, check_name, check_version
from mmcache.rollout.trial import Trial, told
from mmcache.rollout.watch import Watch

if TYPE_CHECKING:
    from mmcache.cache import Cache
    from mmcache.keys.region import Region
    from mmcache.model.key import Key
    from mmcache.rows import Row

T = TypeVar("T")
Version = Callable[..., Any] | tuple[Callable[..., Any], Signature | str]
_OPTIONS = ("ttl", "bypass", "tenant", "namespace")


class RolloutOptions(TypedDict, total=False):
    """Keyword arguments that versions given as functions are wrapped with: see `Cache.wrap`."""

    modality: str
    returns: Iterable[type]
    guard: bool
    ttl: float | None
    tenant: str | None
    namespace: str | None
    content: ContentOptions


class Rollout:
    """Call it like an encoder. Everybody gets the stable version; of a canary's tenants, each call gets the candidate.

    >>> encode = cache.rollout("clip", {"v1": encode_v1, "v2": encode_v2}, modality="image")   # doctest: +SKIP
    >>> encode.canary("v2", percent=5)                                                         # doctest: +SKIP
    >>> encode(picture)                                                                        # doctest: +SKIP
    """

    def __init__(
        self,
        cache: Cache,
        name: str,
        versions: Mapping[str, Version],
        *,
        compare: Compare = "cosine",
        compare_share: float = 0.2,
        halt_after: int = 5,
        halt_below: float | None = None,
        records: Records | None = None,
        spare: Records | None = None,
        draw: Callable[[], float] = random.random,
        **options: Unpack[RolloutOptions],
    ) -> None:
        """versions: name → a function, which is signed `"name version"`; `(function, signature)`; or an encoder that
        `cache.wrap` made. The first is stable until somebody decides otherwise. Other keywords as for `Cache.wrap`.

        compare: how outputs of both are compared: `"cosine"`, `"exact"`, or a function of two outputs that returns a
        number, 1 = the same.
        compare_share: share of the candidate's calls that are answered by both, one after the other, to compare.
        halt_after: errors of the candidate in a row, in one process, after which it is put on hold for all.
        halt_below: mean agreement of the last comparisons (20 to 50) of a process, below which it is put on hold.
        records: where the state is kept; default: the cache's shared tier, its folder, or this process. spare:
        remembers it while it cannot be reached.
        Raises `SettingsError`.
        """
        self._cache, self.name = cache, check_name(name)
        self._encoders = {
            check_version(version): self._encoder(version, given, options) for version, given in versions.items()
        }
        if not self._encoders:
            raise SettingsError(f"the rollout {name} needs a version: {{'v1': function}}")
        _check_apart(self._encoders)
        if records is None:
            shared = cache.below.shared
            server = () if shared is None else (shared.client, shared.client.address.prefix)
            records, spare = places(cache.root, *server)
        self._trial = Trial(
            name, records, agreement(compare, cache.structures), say=self._say, share=compare_share,
            halt_after=halt_after, halt_below=halt_below, draw=draw, clock=cache.clock,
            models={version: encoder.signature.model_version for version, encoder in self._encoders.items()},
        )  # fmt: skip
        first = next(iter(self._encoders))
        self._watch = Watch(name, first, records, clock=cache.clock, say=self._say, spare=spare)
        self._board = Board(records, cache.clock)
        self._tenant: str | None = options.get("tenant")
        self._unit = ""
        self._place = ("", 0.0)
        self._watch.look()
        self._publish()

    def _encoder(self, version: str, given: Version, options: RolloutOptions) -> Encoder:
        if isinstance(given, Encoder):
            return given
        function, signature = given if isinstance(given, tuple) else (given, f"{self.name} {version}")
        return self._cache.wrap(function, signature=signature, **options)

    def options(self, *, unit: str | None = None, **changes: Any) -> Rollout:
        """The same rollout for another `tenant`, `namespace`, `ttl`, `bypass`; or, where one tenant is everybody, for a
        `unit` of it, such as a session: the canary's share is then one of units."""
        if unknown := changes.keys() - set(_OPTIONS):
            raise TypeError(f"options() has no {', '.join(sorted(unknown))}")
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        if changes:
            twin._encoders = {version: encoder.options(**changes) for version, encoder in self._encoders.items()}
        twin._tenant = changes.get("tenant", self._tenant)
        twin._unit = self._unit if unit is None else str(unit)
        twin._place = ("", 0.0)
        return twin

    # Who gets what --------------------------------------------------------------------------------------------------

    def _choose(self) -> tuple[State, str, str]:
        """The state; the stable version; and the candidate where it is this unit's turn, else empty."""
        state = self._watch.state()
        if self._trial.due and self._watch.reachable:
            self._publish()
        stable = state.stable
        if stable not in self._encoders:
            self._watch.lacks(state, stable, self._encoders)
            stable = state.previous if state.previous in self._encoders else next(iter(self._encoders))
        if not state.trying or self._watch.off(state):
            return state, stable, ""
        if not self._in(state):
            self._trial.count(state, "stable")
            return state, stable, ""
        if state.candidate not in self._encoders:
            self._watch.lacks(state, state.candidate, self._encoders)
            self._trial.count(state, "stable", "unknown")
            return state, stable, ""
        return state, stable, state.candidate if state.candidate != stable else ""

    def _in(self, state: State) -> bool:
        """Whether this unit is in the canary."""
        seed, where = self._place
        if seed != state.seed:
            where = place(state.seed, self._cache.tenant if self._tenant is None else self._tenant, self._unit)
            self._place = state.seed, where
        return within(where, state.percent)

    def version(self) -> str:
        """Which version answers now, for this tenant and unit."""
        _, stable, candidate = self._choose()
        return candidate or stable

    def encoder(self, version: str | None = None) -> Encoder:
        """Of a version; default: the one that answers now."""
        return self._encoders[self.version() if version is None else version]

    # Calls ----------------------------------------------------------------------------------------------------------

    def _serve(self, call: Callable[[Encoder], T]) -> tuple[str, T]:
        """Which version answered, and what."""
        state, stable, candidate = self._choose()
        if not candidate:
            return stable, call(self._encoders[stable])
        try:
            output = call(self._encoders[candidate])
        except Exception as error:  # noqa: BLE001 - a new model may raise anything; the caller gets the stable one's
            output = call(self._encoders[stable])  # where this raises as well, it was the input
            self._stopped(state, self._trial.failed(state, error))
            return stable, output
        self._trial.answered(state)
        if self._trial.compares():
            try:
                other = call(self._encoders[stable])
            except Exception as error:  # noqa: BLE001 - nor may comparing cost the caller its answer
                self._say(f"{stable} could not be compared with: {told(error)}")
                return candidate, output
            self._stopped(state, self._trial.compared(state, other, output))
        return candidate, output

    def _stopped(self, state: State, reason: str) -> None:
        if reason:
            self._say(f"{state.candidate} is put on hold: {reason}")
            self._watch.hold(state, reason)
            self._watch.state()
            self._publish()

    def __call__(self, source: Any, *arguments: Any, **keywords: Any) -> Any:
        """See `Encoder.__call__`."""
        return self._serve(lambda encoder: encoder(source, *arguments, **keywords))[1]

    def versioned(self, source: Any, *arguments: Any, **keywords: Any) -> tuple[str, Any]:
        """Which version answered, and its output: for whoever must read the outputs of two versions differently."""
        return self._serve(lambda encoder: encoder(source, *arguments, **keywords))

    def region(self, picture: Any, region: Region, *arguments: Any, **keywords: Any) -> Any:
        """See `Encoder.region`."""
        return self._serve(lambda encoder: encoder.region(picture, region, *arguments, **keywords))[1]

    def row(self, row: Row | Sequence[Row], load: Callable[[], Any], *arguments: Any, **keywords: Any) -> Any:
        """See `Encoder.row`."""
        return self._serve(lambda encoder: encoder.row(row, load, *arguments, **keywords))[1]

    def batch(self, sources: Iterable[Any], *arguments: Any, **keywords: Any) -> Any:
        """See `Encoder.batch`; one version answers all of it."""
        held = list(sources)
        return self._serve(lambda encoder: encoder.batch(held, *arguments, **keywords))[1]

    def tiles(self, picture: Any, *arguments: Any, **keywords: Any) -> Any:
        """See `Encoder.tiles`."""
        return self._serve(lambda encoder: encoder.tiles(picture, *arguments, **keywords))[1]

    def frames(self, video: Any, *arguments: Any, **keywords: Any) -> Any:
        """See `Encoder.frames`."""
        return self._serve(lambda encoder: encoder.frames(video, *arguments, **keywords))[1]

    def segments(self, audio: Any, *arguments: Any, **keywords: Any) -> Any:
        """See `Encoder.segments`."""
        return self._serve(lambda encoder: encoder.segments(audio, *arguments, **keywords))[1]

    async def a(self, source: Any, *arguments: Any, **keywords: Any) -> Any:
        """The async twin; see `Encoder.a`."""
        return (await self.versioned_async(source, *arguments, **keywords))[1]

    async def versioned_async(self, source: Any, *arguments: Any, **keywords: Any) -> tuple[str, Any]:
        """The async twin of `versioned`."""
        import asyncio

        waits = self._watch.due or self._trial.due
        state, stable, candidate = await asyncio.to_thread(self._choose) if waits else self._choose()
        if not candidate:
            return stable, await self._encoders[stable].a(source, *arguments, **keywords)
        try:
            output = await self._encoders[candidate].a(source, *arguments, **keywords)
        except Exception as error:  # noqa: BLE001 - as in `_serve`
            output = await self._encoders[stable].a(source, *arguments, **keywords)
            await asyncio.to_thread(self._stopped, state, self._trial.failed(state, error))
            return stable, output
        self._trial.answered(state)
        if self._trial.compares():
            try:
                other = await self._encoders[stable].a(source, *arguments, **keywords)
            except Exception as error:  # noqa: BLE001 - as in `_serve`
                self._say(f"{stable} could not be compared with: {told(error)}")
                return candidate, output
            await asyncio.to_thread(lambda: self._stopped(state, self._trial.compared(state, other, output)))
        return candidate, output

    async def abatch(self, sources: Iterable[Any], *arguments: Any, **keywords: Any) -> Any:
        """The async twin of `batch`: runs in a thread."""
        import asyncio

        return await asyncio.to_thread(self.batch, list(sources), *arguments, **keywords)

    async def arow(self, row: Row | Sequence[Row], load: Callable[[], Any], *arguments: Any, **keywords: Any) -> Any:
        """The async twin of `row`: runs in a thread."""
        import asyncio

        return await asyncio.to_thread(self.row, row, load, *arguments, **keywords)

    def key(self, source: Any, *arguments: Any, **keywords: Any) -> Key:
        """The key under which this call is stored now."""
        return self.encoder().key(source, *arguments, **keywords)

    # Decisions ------------------------------------------------------------------------------------------------------

    def canary(self, version: str, percent: float) -> State:
        """Give `version` a share of the tenants; again, to change the share or resume. See `mmcache signature canary`.

        Raises `RolloutError`, `SettingsError`, and `TierError` where the records cannot be written.
        """
        check_version(version)
        if version not in self._encoders:
            raise SettingsError(f"this program has no {version}, only {', '.join(self._encoders)}")
        return self._decided(self._board.canary(self.name, version, percent))

    def promote(self, *, force: bool = False) -> State:
        """Make the candidate stable, for everybody at once. Raises as `canary`."""
        return self._decided(self._board.promote(self.name, force=force))

    def rollback(self) -> State:
        """End the candidate, or return to what was stable before the last promotion. Raises as `canary`."""
        return self._decided(self._board.rollback(self.name))

    def _decided(self, state: State) -> State:
        self._watch.look()
        return state

    def state(self) -> State:
        """As this process knows it."""
        return self._watch.state()

    def counts(self) -> Counts:
        """What all processes saw of the running trial. Raises `TierError`."""
        self._publish()
        return self._board.report(self.name).of(self._watch.state())

    def _publish(self) -> None:
        self._trial.publish()

    def close(self) -> None:
        """Tell the others what was counted in the last second. `Cache.close` does it where `Cache.rollout` made it."""
        self._publish()

    def _say(self, message: str) -> None:
        self._cache.events.emit(Failed(f"rollout {self.name}", message))


def _check_apart(encoders: Mapping[str, Encoder]) -> None:
    seen: dict[bytes, str] = {}
    for version, encoder in encoders.items():
        other = seen.setdefault(encoder.signature.digest, version)
        if other != version:
            raise SettingsError(
                f"{other} and {version} have the same signature, so one would be served the other's blocks; give each "
                "its own: (function, 'model 2.0')"
            )
