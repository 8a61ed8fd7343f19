"""`Encoder`: a model's function with a cache in front. What `Cache.wrap` returns.

The model is given the canonical form of its input, which is exactly what the key describes: decoded, EXIF-oriented
pixels; NFC text; mono float32 PCM. So nothing that the key does not see can change the output.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Required, TypedDict

from blake3 import blake3

from mmcache.batching import split, stack
from mmcache.guard import NetBenefit
from mmcache.keeping import AtMost
from mmcache.keys.arguments import canonical_arguments
from mmcache.keys.content import MODALITIES, Content, ContentOptions, identify
from mmcache.keys.region import Region, tiles
from mmcache.keys.signing import Signature
from mmcache.keys.signing.functions import function_identity
from mmcache.lookup import Lookup
from mmcache.model.errors import InvalidInputError, SettingsError, UnversionedModelError
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.model.void import VoidKey
from mmcache.repeat import Repeat
from mmcache.rows import Row
from mmcache.scopes import Scope
from mmcache.settings import parse_ttl
from mmcache.visits import Again

if TYPE_CHECKING:
    from mmcache.cache import Cache
    from mmcache.explain import Explanation


@dataclass(frozen=True, slots=True)
class Request:
    """One input, identified: its key, and how to make what the model must be given."""

    key: Key
    scope: Scope
    give: Callable[[], Any]
    content: Content
    again: Again | None = None
    """For a prefetcher."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What `Encoder.options` changes."""

    ttl: float | None = None
    """Seconds that results stay; None = the cache's lifetime decides."""
    bypass: bool = False
    """Compute, neither looking up nor storing."""
    tenant: str | None = None
    namespace: str | None = None


class WrapOptions(TypedDict, total=False):
    """Keyword arguments of `Cache.wrap`, explained there."""

    modality: Required[str]
    signature: Signature | str | None
    batch: Callable[..., Any] | None
    returns: Iterable[type]
    guard: bool
    ttl: float | None
    tenant: str | None
    namespace: str | None
    content: ContentOptions


def wrapped(cache: Cache, options: WrapOptions, function: Callable[..., Any]) -> Encoder:
    """What `Cache.wrap` returns. Raises `UnversionedModelError`, and `TypeError` like any call with wrong keywords."""
    if unknown := options.keys() - WrapOptions.__annotations__.keys():  # a misspelt tenant must not become none
        raise TypeError(f"wrap() has no option {', '.join(sorted(unknown))}")
    if "modality" not in options:
        raise TypeError("wrap() needs modality=…")
    for returned in options.get("returns", ()):
        cache.structures.declare(returned)
    signature = options.get("signature")
    if isinstance(signature, str) and not signature:
        raise UnversionedModelError("signature='' names no version; pass e.g. signature='my-model 1.0'")
    if (modality := options["modality"]) not in MODALITIES:
        raise SettingsError(f"modality is one of {', '.join(MODALITIES)}, not {modality!r}")
    described = Signature.of(function if signature is None else signature)
    if not described.function:  # or two functions of one model, or of one version string, would share
        described = replace(described, function=function_identity(function))
    parse_ttl(options.get("ttl"))
    return Encoder(
        cache,
        function,
        modality=modality,
        signature=described,
        batch=options.get("batch"),
        content=options.get("content", ContentOptions()),
        guard=options.get("guard", True),
        options=CallOptions(ttl=options.get("ttl"), tenant=options.get("tenant"), namespace=options.get("namespace")),
    )


class Encoder:
    """A cached encoder. Call it like the function it wraps; `.a` is the async twin, `.batch` takes many inputs."""

    def __init__(
        self,
        cache: Cache,
        function: Callable[..., Any],
        *,
        modality: str,
        signature: Signature,
        batch: Callable[..., Any] | None,
        content: ContentOptions,
        guard: bool,
        options: CallOptions = CallOptions(),
    ) -> None:
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__doc__ = getattr(function, "__doc__", None) or type(self).__doc__
        self._cache = cache
        self._batch = batch
        self._content = content
        self._options = options
        self._guard = NetBenefit() if guard else None
        self._modality = modality
        self._awaited = inspect.iscoroutinefunction(function)
        self._signature = replace(signature, modality=modality)
        self._scopes: dict[str, Scope] = {}  # by decoder

    def options(self, **changes: Any) -> Encoder:
        """The same encoder with other `ttl`, `bypass`, `tenant` or `namespace`."""
        parse_ttl(changes.get("ttl"))
        twin = object.__new__(Encoder)
        twin.__dict__.update(self.__dict__)
        twin._options = replace(self._options, **changes)
        twin._scopes = {}
        return twin

    @property
    def signature(self) -> Signature:
        """Of the model, before any decoder."""
        return self._signature

    # Identity -------------------------------------------------------------------------------------------------------

    def _scope(self, decoder: str) -> Scope:
        scope = self._scopes.get(decoder)
        if scope is None:
            signature = replace(self._signature, decoder=decoder) if decoder else self._signature
            o, cache = self._options, self._cache
            tenant = cache.tenant if o.tenant is None else o.tenant
            namespace = cache.namespace if o.namespace is None else o.namespace
            scope = self._scopes[decoder] = cache.scopes.of(signature, tenant, namespace)
        return scope

    def _identify(
        self, source: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], region: Region | None = None
    ) -> Request:
        bare = self._scope("")
        content = identify(source, self._modality, salt=bare.salt, memo=self._cache.memo, options=self._content)
        return self._request(content, arguments, keywords, region, source)

    def _request(
        self,
        content: Content,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        region: Region | None = None,
        source: Any = None,
    ) -> Request:
        """source: what `content` was read from, where that can be read again."""
        scope = self._scope(content.decoder)
        digest = content.digest
        if arguments or keywords:
            extra = canonical_arguments(arguments, keywords)
            digest = blake3(digest + extra, key=scope.salt).digest(length=16)
        again = None
        if self._cache.prefetcher is not None and source is not None and not self._awaited:
            again = Repeat(self, source, region, arguments, keywords)
        if region is None:
            return Request(Key(scope.digest, digest), scope, content.canonical, content, again)
        key = Key(scope.digest, digest, region.digest(scope.salt))
        return Request(key, scope, lambda: region.render(content.canonical()), content, again)

    def key(self, source: Any, *arguments: Any, region: Region | None = None, **keywords: Any) -> Key:
        """The key under which this call is stored."""
        return self._identify(source, arguments, keywords, region).key

    def explain(self, source: Any, *arguments: Any, region: Region | None = None, **keywords: Any) -> Explanation:
        """What the key of this call is made of, and what the cache holds for it. Changes nothing."""
        request = self._identify(source, arguments, keywords, region)
        return self._cache.explain(request.key, content=request.content)

    # One input ------------------------------------------------------------------------------------------------------

    def __call__(self, source: Any, *arguments: Any, **keywords: Any) -> Any:
        """The model's output for `source`: stored, or computed once. Arrays are read-only views; copy to write."""
        return self._answer(source, None, arguments, keywords)

    def __get__(self, instance: object, owner: type | None = None) -> Encoder:
        if instance is not None:
            raise TypeError("an encoder cannot be a method: wrap the bound method instead, cache.wrap(model.encode, …)")
        return self

    def region(self, picture: Any, region: Region, *arguments: Any, **keywords: Any) -> Any:
        """The output for a crop or scale of `picture`: the model sees exactly that region, rendered once."""
        return self._answer(picture, region, arguments, keywords)

    def _answer(self, source: Any, region: Region | None, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if self._awaited:
            raise TypeError(f"{self.__name__} is a coroutine function: await encode.a(…) instead")
        guard, started = self._guard, time.perf_counter()
        request = self._identify(source, arguments, keywords, region)
        compute = self._computing(request, arguments, keywords)
        if self._options.bypass or (guard is not None and guard.bypass()):
            why = self._options.bypass or "a lookup costs more than computing"
            return self._cache.answers.answer(request.key, compute, bypass=why)
        look = self._cache.answers.look_up([request.key], settled=True, again=[request.again])[0]
        looked, computing = time.perf_counter() - started, look.saved

        def timed() -> Any:
            nonlocal computing
            began = time.perf_counter()
            output = compute()
            computing = time.perf_counter() - began
            return output

        output = self._cache.answers.settle(request.key, look, timed, ttl=self._options.ttl)
        if guard is not None and computing and guard.observe(looked, computing):
            self._cache.events.emit(
                Failed("guard", f"{self.__name__}: a lookup costs more than computing; bypassing for a while")
            )
        return output

    def row(self, row: Row | Sequence[Row], load: Callable[[], Any], *arguments: Any, **keywords: Any) -> Any:
        """The output for what `load()` reads from a database row (or several): while that row has not changed, nothing
        is loaded and nothing computed.

        Kept by row is only which content it had, so rows of equal content share one block, and a change that was none
        costs a load. While this process cannot hear what changes (`stale-lease`) everything is loaded.
        """
        if self._options.bypass or self._cache.mode != "on":
            return self(load(), *arguments, **keywords)
        scope, answers = self._scope(""), self._cache.answers
        digest = blake3(b"row" + canonical_arguments(arguments, keywords), key=scope.salt).digest(length=16)
        place = self._cache.below.key(scope, digest, rows=row)
        if isinstance(place, VoidKey):
            answers.count_miss([place], Lookup(None, reason=place.reason, detail="rows"), "row")
        elif (known := answers.find(place).make) is not None:
            found = answers.look_up([Key.from_bytes(bytes(known()))], strategy="row")[0]  # type: ignore[call-overload]
            if found.make is not None:
                return found.make()
        started = time.perf_counter()
        source = load()
        cost = time.perf_counter() - started
        output = self(source, *arguments, **keywords)
        answers.keep(place, bytes(self.key(source, *arguments, **keywords)), cost=cost, ttl=self._options.ttl)
        return output

    async def a(self, source: Any, *arguments: Any, **keywords: Any) -> Any:
        """The async twin: a coroutine function is awaited, a plain one runs in a thread."""
        import asyncio

        request = await asyncio.to_thread(self._identify, source, arguments, keywords)
        compute = self._computing(request, arguments, keywords)
        return await self._cache.answers.answer_async(
            request.key, compute, ttl=self._options.ttl, bypass=self._options.bypass, again=request.again
        )

    def bring(
        self,
        source: Any,
        region: Region | None,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        ttl: float | None,
    ) -> int:
        """Have the output for `source` in memory before anybody asks; see `visits.Again`. Returns bytes brought."""
        request = self._identify(source, arguments, keywords, region)
        own = self._options.ttl
        ttl = own if ttl is None else AtMost(ttl) if own is None else min(ttl, own)
        compute = self._computing(request, arguments, keywords)
        return self._cache.answers.speculate(request.key, request.scope, compute, ttl)

    def _computing(
        self, request: Request, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Callable[[], Any | Awaitable[Any]]:
        function, give = self.__wrapped__, request.give
        return lambda: function(give(), *arguments, **keywords)

    # Many inputs ----------------------------------------------------------------------------------------------------

    def batch(self, sources: Iterable[Any], *arguments: Any, stack: bool = False, **keywords: Any) -> Any:
        """Outputs in the order of `sources`: a list, or with `stack` one array with a new first axis.

        Only what is missing reaches the model, in one call when `wrap` was given `batch=`; equal inputs once.
        """
        requests = [self._identify(source, arguments, keywords) for source in sources]
        return self._assemble(requests, arguments, keywords, stack)

    async def arow(self, row: Row | Sequence[Row], load: Callable[[], Any], *arguments: Any, **keywords: Any) -> Any:
        """The async twin of `row` for plain functions: runs in a thread."""
        import asyncio

        return await asyncio.to_thread(self.row, row, load, *arguments, **keywords)

    async def abatch(self, sources: Iterable[Any], *arguments: Any, stack: bool = False, **keywords: Any) -> Any:
        """The async twin of `batch` for plain functions: runs in a thread."""
        import asyncio

        return await asyncio.to_thread(self.batch, list(sources), *arguments, stack=stack, **keywords)

    def tiles(
        self,
        picture: Any,
        *arguments: Any,
        tile: int | tuple[int, int] = 224,
        overlap: int = 0,
        box: tuple[int, int, int, int] | None = None,
        stack: bool = True,
        **keywords: Any,
    ) -> Any:
        """Outputs of the picture's tiles (or of the tiles that touch `box` = left, upper, right, lower), row by row.

        Each tile is a block of its own, so overlapping crops of one picture compute only what they do not share.
        """
        content = self._identify(picture, arguments, keywords).content
        width, height = self._size(content)
        regions = [r for r in tiles(width, height, tile, overlap) if box is None or r.overlaps_box(box)]
        requests = [self._request(content, arguments, keywords, region, picture) for region in regions]
        return self._assemble(requests, arguments, keywords, stack)

    def frames(self, video: Any, *arguments: Any, stack: bool = True, **keywords: Any) -> Any:
        """Outputs of a video's sampled frames; each frame is a block, so a still scene is computed once.

        `video` is a file or a list of frames; the wrapped function takes a picture.
        """
        bare = self._scope("")
        content = identify(video, "video", salt=bare.salt, memo=self._cache.memo, options=self._content)
        requests = [self._request(frame, arguments, keywords) for frame in content.frames()]
        return self._assemble(requests, arguments, keywords, stack)

    def segments(self, audio: Any, *arguments: Any, seconds: float = 30.0, stack: bool = False, **keywords: Any) -> Any:
        """Outputs of consecutive audio segments of `seconds`; each segment is a block. The last may be shorter."""
        if seconds <= 0:
            raise InvalidInputError("a segment lasts more than 0 seconds")
        content = self._identify(audio, arguments, keywords).content
        pcm, rate = content.canonical(), self._content.sample_rate
        step = max(1, round(seconds * rate))
        pieces = [(pcm[start : start + step], rate) for start in range(0, max(1, len(pcm)), step)]
        return self.batch(pieces, *arguments, stack=stack, **keywords)

    def _size(self, content: Content) -> tuple[int, int]:
        """(width, height) of a picture: remembered under a MAC, so that a damaged memo decodes again and never lies."""
        memo, salt = self._cache.memo, self._scope("").salt
        label = b"size" + content.digest
        known = memo.recall(label)
        if known is not None and known[8:] == blake3(label + known[:8], key=salt).digest(length=16):
            return int.from_bytes(known[:4], "big"), int.from_bytes(known[4:8], "big")
        picture = content.canonical()
        if not hasattr(picture, "crop"):
            raise InvalidInputError("tiles need a picture (PIL image, path or bytes), not an array")
        size = picture.width.to_bytes(4, "big") + picture.height.to_bytes(4, "big")
        memo.remember(label, size + blake3(label + size, key=salt).digest(length=16))
        return picture.width, picture.height

    def _assemble(
        self, requests: Sequence[Request], arguments: tuple[Any, ...], keywords: dict[str, Any], stacked: bool
    ) -> Any:
        def compute(missing: Sequence[Request]) -> list[Any]:
            inputs = [request.give() for request in missing]
            if self._batch is not None:
                return split(self._batch(inputs, *arguments, **keywords), len(inputs))
            return [self.__wrapped__(each, *arguments, **keywords) for each in inputs]

        options, again = self._options, [request.again for request in requests]
        answers = self._cache.answers
        outputs = answers.answer_many(requests, compute, ttl=options.ttl, bypass=options.bypass, again=again)
        return stack(outputs) if stacked else outputs
