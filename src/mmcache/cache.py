"""`Cache`: the whole flow. Deciders decide, doers do, watchers watch, and this file joins them.

    get         key → nearest tier → frame → gate → thaw → value
    miss        single flight → compute → admission → freeze → every tier, with a deadline from the lifetime
    invalidate  references.reach(keys) → doom flights → drop in every tier

The steps live next door: `scopes` (whose key is it), `store` (tiers as one), `fill` (the miss path), `encoder` (a
model's function in front of it all), `semantic` (answers by meaning).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from mmcache.admission.base import Admission
from mmcache.answer import Answers, nothing
from mmcache.codecs.pipeline import CodecSetting
from mmcache.codecs.structure import Structures
from mmcache.config_file import read_config
from mmcache.encoder import Encoder, WrapOptions, wrapped
from mmcache.events import Events
from mmcache.explain import Explanation, explain
from mmcache.fill import Fill
from mmcache.flight import SingleFlight
from mmcache.keeping import Keeping
from mmcache.keys.content import Content, ContentOptions, identify
from mmcache.keys.realm import RealmKeys, root_secret
from mmcache.keys.region import Region
from mmcache.keys.signing import Signature
from mmcache.lower import Lower
from mmcache.model.clock import Clock, SystemClock
from mmcache.model.errors import SettingsError, TierClosedError
from mmcache.model.key import Key
from mmcache.model.void import VoidKey
from mmcache.modes import Mode, checked_mode, checked_share
from mmcache.policies.base import Policy
from mmcache.refs.base import References
from mmcache.revalidate import Revalidation
from mmcache.rows import Row
from mmcache.scopes import Scopes
from mmcache.semantic.heard import heard
from mmcache.semantic.options import AskOptions, SourceKind
from mmcache.settings import Settings, SharedSettings, Tenant, enabled, parse_bytes, parse_ttl
from mmcache.stats import CacheStats, Tally
from mmcache.store import Store
from mmcache.tiers.base import Tier
from mmcache.ttl.base import Lifetime
from mmcache.twins import AsyncCache
from mmcache.visits import Prefetcher, chosen, followed

if TYPE_CHECKING:
    from mmcache.rollout import Rollout
    from mmcache.semantic.meaning import Meaning
    from mmcache.semantic.prompt import Prompt
    from mmcache.semantic.settings import Reply, Semantic
    from mmcache.semantic.stream import Stream

_MISSING = object()


class Cache:
    """An adaptive cache of what models computed.

    >>> with Cache(memory="64MiB") as cache:
    ...     key = cache.key("a cat", modality="text", signature="embedder-1")
    ...     cache.get_or_compute(key, lambda: "vector")
    'vector'

    root: folder of the disk tier, shared by any number of processes; None = memory only.
    memory, disk: byte limits (`"2GiB"` or a number); disk=None or 0 turns that tier off.
    policy, admission, ttl, references: a plug-in's name or an object; `ttl` also takes seconds.
    tenants: class and byte quota of those that are not `Tenant()`: `{"payments": Tenant("critical", quota="4GiB")}`;
    with them, admission is `"qos"` unless said otherwise.
    stale_while_revalidate: seconds after its end for which a block is served while one caller computes it anew.
    codec: `"raw"` (lossless), `"fp16"`, `"int4"`, chains like `"int4+zstd"`, or one per modality as a dict.
    tenant, namespace: the realm that keys are salted with; nothing is shared across realms.
    mode: `"on"`; `"shadow"` looks up, always computes, compares and returns the computed value; `"off"` bypasses.
    verify_share: share of hits (0…1) that are recomputed and compared; see `stats().differed`.
    secret: 32 bytes that salt every key, the same on all hosts that share; default: a key file in `root`.
    returns: dataclasses or namedtuples that models return and that hits must be rebuilt as.
    shared: the tier that hosts share, `"valkey://host:6379?cluster=true"` or `SharedSettings`; None = no.
    lower: further tiers below those, nearest first.
    semantic: a `Semantic`: `ask` may answer with what is stored for another prompt, where it has learned to; None = no.
    prefetch: `"behaviour"` brings what visitors look for next, or a `Prefetcher`; see `visit`. None = nothing does.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        memory: int | str | None = None,
        disk: int | str | None = "10GiB",
        policy: str | Policy = "auto",
        admission: str | Admission | None = None,
        ttl: float | str | Lifetime | None = None,
        references: str | References = "counted",
        tenants: Mapping[str, Tenant] | None = None,
        stale_while_revalidate: float = 0.0,
        codec: CodecSetting = "raw",
        tenant: str = "default",
        namespace: str = "default",
        mode: Mode = "on",
        verify_share: float = 0.0,
        secret: bytes | None = None,
        returns: Iterable[type] = (),
        shared: str | SharedSettings | None = None,
        lower: Sequence[Tier] = (),
        semantic: Semantic | None = None,
        prefetch: str | Prefetcher | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings = settings or Settings()
        if memory is not None:
            settings = replace(settings, memory=replace(settings.memory, limit_bytes=parse_bytes(memory)))
        mode, verify_share = checked_mode(mode), checked_share(verify_share)
        self.tenant, self.namespace = tenant, namespace
        self.prefetcher = chosen(prefetch)
        self.events = Events()
        self.clock: Clock = clock or SystemClock()
        early, tenants = settings.early_refresh, tenants or {}
        keeping = Keeping.choose(policy, admission, ttl, references, tenants, early, stale_while_revalidate)
        slots = keeping.slots(settings.compute_slots, tenants, self.clock)
        self._references = keeping.references
        self._tally = Tally()
        self._flights = SingleFlight()
        self._closed = False
        self.root = None if root is None else Path(root).expanduser()
        secret = root_secret(self.root, secret)
        realms = RealmKeys(secret)
        self.below = below = Lower.open(
            self.root, disk, shared, lower, limits=settings.disk, secret=secret, clock=self.clock, tenants=tenants,
            upstairs=lambda: self._store, heard=partial(heard, self),
        )  # fmt: skip
        self.memo = below.memo
        """Encoded bytes seen before → their canonical content; on disk where there is a disk tier."""
        self.structures = Structures()
        for returned in returns:
            self.structures.declare(returned)
        self.scopes = Scopes(realms, codec)
        self._store = Store(
            memory=settings.memory, keeping=keeping, lower=below.tiers, scopes=self.scopes, structures=self.structures,
            clock=self.clock, events=self.events, below=self._get_below, broadcast=below.broadcast,
            doom=self._flights.doom, signatures=below.signatures, elsewhere=below.shared,
        )  # fmt: skip
        fill = Fill(self._store, self._flights, below.claims, self._tally, settings.flight, slots)
        revalidation = Revalidation(self._store, fill, self._flights, below.claims, keeping, self.clock)
        self.answers = Answers(
            self._store, fill, revalidation, self.scopes, self._tally, self.events, self.structures, verify_share
        )
        """Lookups that may end in a computation; what `Encoder` calls."""
        self.peek: Callable[..., Any] = self._store.memory.peek
        """`peek(key, default=None)`: the value if it is in memory. Never blocks, never reads a lower tier."""
        self.get: Callable[..., Any] = self._store.memory.get_or_below
        """`get(key, default=None)`: the stored value from the nearest tier. Arrays are read-only views."""
        self.a = AsyncCache(self)
        """The async twins."""
        self.switch(mode if enabled() else "off")
        self._semantic = semantic
        if semantic is not None:
            _ = self.meaning  # what is wrong with it is said here
        below.start()
        if self.prefetcher is not None:
            self.answers.prefetcher = self.prefetcher
            self.prefetcher.start(self)

    @cached_property
    def meaning(self) -> Meaning:
        """The flow of `ask`; opened at its first use."""
        from mmcache.semantic.meaning import Meaning

        return Meaning.open(self, self._semantic)

    @classmethod
    def from_config(cls, path: str | os.PathLike[str], **changes: Any) -> Self:
        """The cache that a TOML file describes, e.g. one that `mmcache advise` wrote; `changes` override it. `[cache]`
        holds the constructor's arguments, `[cache.shared]` those of `SharedSettings`, `[tenants.NAME]` a `Tenant`'s.
        Raises `SettingsError`."""
        return cls(**read_config(path) | changes)

    def key(
        self,
        source: Any,
        *,
        modality: str,
        signature: Signature | str,
        tenant: str | None = None,
        namespace: str | None = None,
        region: Region | None = None,
        content: ContentOptions = ContentOptions(),  # noqa: B008 - frozen
        rows: Row | Sequence[Row] = (),
    ) -> Key:
        """The key of `source` (picture, text, audio, video, tensor) for what `signature` computes from it.

        `modality` is `image`, `text`, `audio`, `video` or `tensor`. rows: what the result also rests on; the key is
        another one as soon as the database says that one of them changed, so make it anew for each request. Raises
        `InvalidInputError` for content that has no canonical form, `SettingsError` for rows without a shared tier.
        """
        base = replace(Signature.of(signature), modality=modality)
        tenant = self.tenant if tenant is None else tenant
        namespace = self.namespace if namespace is None else namespace
        scope = self.scopes.of(base, tenant, namespace)
        found = identify(source, modality, salt=scope.salt, memo=self.memo, options=content)
        if found.decoder:
            scope = self.scopes.of(replace(base, decoder=found.decoder), tenant, namespace)
        return self.below.key(scope, found.digest, region, rows)

    @overload
    def wrap(self, function: Callable[..., Any], /, **options: Unpack[WrapOptions]) -> Encoder: ...
    @overload
    def wrap(self, /, **options: Unpack[WrapOptions]) -> Callable[[Callable[..., Any]], Encoder]: ...
    def wrap(
        self, function: Callable[..., Any] | None = None, /, **options: Unpack[WrapOptions]
    ) -> Encoder | Callable[[Callable[..., Any]], Encoder]:
        """Put the cache in front of `function(input, …)`; also a decorator: `@cache.wrap(modality="text", …)`.

        modality: `image`, `text`, `audio`, `video` or `tensor`.
        signature: what the output depends on: `Signature.of(model)`, or a string that names an explicit version.
        batch: a function that takes a list of inputs; the misses of `encode.batch` reach it in one call.
        returns: dataclasses or namedtuples that the function returns.
        guard: step aside (and say so) where lookups cost more than their hits save; default True.
        ttl, tenant, namespace: as for the cache. content: how media is read, a `ContentOptions`.
        Raises `UnversionedModelError` when nothing says which version of the model this is.
        """
        return partial(wrapped, self, options) if function is None else wrapped(self, options, function)

    def rollout(self, name: str, versions: Mapping[str, Any], **options: Any) -> Rollout:
        """Versions of one model behind one function, `{"v1": encode_v1, "v2": encode_v2}`: a share of the tenants tries
        a new one before all do. Options as for `Rollout`. Raises `SettingsError`."""
        from mmcache.rollout import Rollout

        found = Rollout(self, name, versions, **options)
        self.below.closers.append(found.close)
        return found

    def _get_below(self, key: Key, default: Any) -> Any:
        self.scopes.check(key)
        make = self.answers.look_up([key])[0].make
        return default if make is None else make()

    def get_or_compute(
        self, key: Key, compute: Callable[[], Any], *, ttl: float | None = None, bypass: bool = False
    ) -> Any:
        """The stored value, or `compute()`'s, stored. Concurrent callers of one key compute once.

        `ttl` in seconds overrides the cache's lifetime. What `compute` raises reaches every caller and is not stored.
        """
        if not (bypass or self.answers.verify_share):
            value = self._fresh(key, _MISSING)
            if value is not _MISSING:
                return value
        parse_ttl(ttl)
        self._check_open()
        return self.answers.answer(key, compute, ttl=ttl, bypass=bypass)

    def ask(self, prompt: Prompt, answer: Callable[[Prompt], Any], **options: Unpack[AskOptions]) -> Reply:
        """A model's answer to `prompt`: stored for it, or (with `semantic`) for one that is trusted to be answered
        alike, or `answer(prompt)`, given pictures and sounds in canonical form.

        model=: a version string, a `Signature`, or an `Alias` that may move. Raises `InvalidInputError` for what
        cannot be read, and what `answer` raises.
        """
        return self.meaning.ask(prompt, answer, options)

    def ask_stream(
        self, prompt: Prompt, answer: Callable[[Prompt], Iterator[Any]], **options: Unpack[AskOptions]
    ) -> Stream:
        """Like `ask`, for an answer in chunks. Who asks the same meanwhile joins the stream under way."""
        return self.meaning.streaming.ask(prompt, answer, options)

    @property
    def mode(self) -> Mode:
        """`on`, `shadow` or `off`; see `switch`."""
        return self.answers.mode

    def switch(self, mode: Mode) -> None:
        """Change the mode at run time; `"off"` is the kill switch. In `shadow` and `off` no stored value is served."""
        self.answers.mode = checked_mode(mode)
        memory, told = self._store.memory, self.prefetcher
        self.peek, self.get, self._fresh = memory.peek, memory.get_or_below, memory.fresh
        if mode != "on":
            self.peek = self.get = self._fresh = _nothing_held
        elif told is not None:
            self.get, self._fresh = followed(told, memory.peek, self._get_below), followed(told, memory.fresh)

    def put(self, key: Key, value: Any, *, cost: float = 0.0, ttl: float | None = None) -> bool:
        """Store `value`; True when at least one tier took it. `cost`: seconds that computing it took.

        Raises `UnsupportedValueError` for values that cannot be stored without pickling.
        """
        self._check_open()
        parse_ttl(ttl)
        if not (math.isfinite(cost) and cost >= 0):
            raise SettingsError(f"a cost is a finite number of seconds, 0 or more, not {cost!r}")
        scope = self.scopes.require(key)
        if self.mode == "off" or isinstance(key, VoidKey):
            return False
        self._flights.doom([key])  # what is being computed is older than this
        done = partial(self._store.tell_others, key) if self._store.replaces(key) else nothing
        return self._store.put(key, scope, value, cost=cost, ttl=ttl, done=done).kept

    def invalidate(self, keys: Key | Iterable[Key]) -> int:
        """Drop keys, and what was linked to depend on them, in every tier; how many blocks were held."""
        self._check_open()
        wanted = [keys] if isinstance(keys, Key) else list(keys)
        for key in wanted:
            self.scopes.check(key)
        return self._store.invalidate(wanted)

    def changed(self, kind: SourceKind, name: Any, *, tenant: str | None = None, namespace: str | None = None) -> int:
        """A `document`, `tool`, `prompt` (version), `model`, `image` or `audio` has changed: answers that rest on it
        are dropped, and found no more, by any process of the machine, after any restart. How many blocks went."""
        return self.meaning.changed(kind, name, tenant=tenant, namespace=namespace)

    def link(self, parent: Key, children: Key | Iterable[Key]) -> None:
        """Say that `parent` (an answer, a fused block) was made from `children`: invalidating one drops it too."""
        self._check_open()
        children = [children] if isinstance(children, Key) else list(children)
        for key in (parent, *children):
            self.scopes.check(key)
        self._references.link(parent, children)
        self._store.memory.refresh(children)
        if surplus := self._references.surplus():
            self._store.invalidate(surplus)

    def attended(self, key: Key, entropy: float) -> None:
        """Say how sure a cross-attention over `key`'s block was: its mean softmax entropy in nats.

        See `policies.entropy.attention_entropy`; policies like `entropy-lfu` keep what models attend to surely.
        """
        if not (math.isfinite(entropy) and entropy >= 0):
            raise SettingsError(f"an entropy is a finite number of nats, 0 or more, not {entropy!r}")
        self._store.memory.refresh([key], entropy)

    @contextmanager
    def pin(self, key: Key) -> Iterator[bool]:
        """Inside, `key` is not evicted from memory; False when it is not there or the pinned share is used up."""
        pinned = self._store.memory.pin(key)
        try:
            yield pinned
        finally:
            if pinned:
                self._store.memory.unpin(key)

    def explain(self, source: Any, *, content: Content | None = None, **key: Any) -> Explanation:
        """What a key is made of and what each tier holds for it; counts nothing, promotes nothing. `source` is a key,
        or an input with the keyword arguments of `Cache.key` (`modality=`, `signature=`, …)."""
        self._check_open()
        wanted = source if isinstance(source, Key) else self.key(source, **key)
        self._store.catch_up()
        return explain(wanted, content, self.scopes, self._store, self.clock)

    def stats(self) -> CacheStats:
        """Exact counters and the tiers' gauges."""
        self._check_open()
        return self._tally.snapshot(self._store.memory.hits, self._store.tier_stats())

    def check_integrity(self) -> None:
        """Raise `IntegrityError` when the cache's parts disagree with each other."""
        self._store.check_integrity()

    def flush(self) -> None:
        """Return when everything stored so far is durable."""
        self._store.settle()
        if "meaning" in self.__dict__:
            self.meaning.flush()
        self._store.each(lambda tier: tier.flush())

    def close(self) -> None:
        """Write what is pending, make it durable, release files and threads. Idempotent."""
        if not self._closed:
            self._closed = True
            if self.prefetcher is not None:
                self.prefetcher.close()
            self.below.quiet()
            if "meaning" in self.__dict__:
                self.meaning.close()
            self._store.close()
            self.below.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise TierClosedError("this cache is closed; open a new one")


def _nothing_held(key: Key, default: Any = None) -> Any:
    return default
