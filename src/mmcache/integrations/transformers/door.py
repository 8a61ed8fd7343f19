"""`cache_vision_tower`: the cache in front of a tower's `forward`, in place, a block for each picture.

The tower's class is exchanged for a subclass of the same name, as torch's own parametrisations do: hooks, `state_dict`,
`isinstance` and attribute access stay as they were, and copies of the model are not cached, nor bound to this one.
"""

from __future__ import annotations

import inspect
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from blake3 import blake3
from torch import nn

from mmcache.codecs.pipeline import choose
from mmcache.guard import NetBenefit
from mmcache.integrations.transformers.aside import REASONS, Aside
from mmcache.integrations.transformers.call import Run, Wanted
from mmcache.integrations.transformers.code import code_of
from mmcache.integrations.transformers.layouts import Layout, Picture
from mmcache.integrations.transformers.swap import DOORS, swapped
from mmcache.integrations.transformers.towers import find
from mmcache.integrations.transformers.watch import Watch, check_signable, numerics, usable
from mmcache.keys.arguments import canonical_arguments
from mmcache.keys.framing import framed
from mmcache.keys.tensor import identify_array
from mmcache.model.errors import InvalidInputError, SettingsError, UnversionedModelError
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.model.signature import Signature

if TYPE_CHECKING:
    from mmcache.cache import Cache
    from mmcache.scopes import Scope

Equal = Literal["close", "exact"]
Forward = Callable[..., Any]

_FORMAT = "mmcache.integrations.transformers/1"


@dataclass(frozen=True, slots=True)
class Asides:
    """What passed through a door so far."""

    pictures: int
    """Asked for in calls that the cache took."""
    computed: int
    """Of these, what reached the tower."""
    aside: dict[str, int]
    """Calls that went past the cache, by reason; `aside.REASONS` says what each means."""


def cache_vision_tower(
    model: nn.Module,
    cache: Cache,
    *,
    signature: Signature | str | None = None,
    tenant: str | Callable[[], str] | None = None,
    namespace: str | None = None,
    at_rest: str | None = None,
    equal: Equal = "close",
    layout: Layout | None = None,
    guard: bool = True,
) -> CachedTower:
    """Put `cache` in front of the vision tower of a transformers model (or of a tower itself), in place.

    signature: names the weights and their version; None = they are read once (about 0.2 s a GB) and watched.
    tenant: a name, or a function that names the tenant of the call under way. namespace: as for the cache.
    at_rest: how blocks are stored, e.g. "fp16" or "int4:group=64"; None = as the cache does.
    equal: "close": what is missing is computed in one batch, whose size may change last bits; "exact": picture by
    picture, so that a picture has one output, whatever it comes with.
    layout: for a tower that is not in `towers.KNOWN`: how pictures lie in its inputs and outputs.
    guard: step aside where lookups cost more than they save.
    Raises `SettingsError` where there is no tower, or it is cached already; `UnversionedModelError` where its weights
    cannot be read.
    """
    tower, found = find(model, layout)
    if tower in DOORS:
        raise SettingsError("this tower is cached already; call remove() on its handle first")
    if equal not in ("close", "exact"):
        raise SettingsError(f'equal is "close" or "exact", not {equal!r}')
    if signature is not None and not signature:
        raise UnversionedModelError("signature='' names no version; pass e.g. signature='my-model 1.0'")
    if at_rest is not None and choose("image", at_rest).seals != cache.scopes.chain("image").seals:
        raise SettingsError("at_rest= cannot turn encryption on or off: set it for the whole cache, with codec=")
    door = CachedTower(tower, cache, found, signature, tenant, namespace, at_rest, equal, guard)
    door._open(tower)
    return door


class CachedTower:
    """The handle of a cached tower; also a context manager that removes the cache at its end."""

    def __init__(
        self,
        tower: nn.Module,
        cache: Cache,
        layout: Layout,
        signature: Signature | str | None,
        tenant: str | Callable[[], str] | None,
        namespace: str | None,
        at_rest: str | None,
        equal: Equal,
        guard: bool,
    ) -> None:
        self._tower = weakref.ref(tower)
        self._cache, self._layout = cache, layout
        self._tenant, self._namespace, self._at_rest, self._equal = tenant, namespace, at_rest, equal
        self._guard = NetBenefit() if guard else None
        self._lock = threading.Lock()
        self._pictures = self._computed = 0
        self._aside: Counter[str] = Counter()
        self._seconds = 0.0  # a picture takes, about
        self._class: Any = type(tower)
        self._own: Forward | None = vars(tower).get("forward")  # what accelerate, or torch.compile(forward), put there
        whole = inspect.signature(self._class.forward)
        self._parameters = whole.replace(parameters=list(whole.parameters.values())[1:])  # without self
        self._given = None if signature is None else Signature.of(signature)
        self._mark = self._marked(tower)
        vars(tower).pop("forward", None)
        try:
            self._sign(tower)
        except BaseException:
            self._restore(tower)
            raise

    # Life ------------------------------------------------------------------------------------------------------------

    def _open(self, tower: nn.Module) -> None:
        tower.__class__ = swapped(self._class)
        DOORS[tower] = self

    def remove(self) -> None:
        """Take the cache out; the tower is what it was. Idempotent."""
        tower = self._tower()
        if tower is None or DOORS.pop(tower, None) is None:
            return
        if type(tower) is swapped(self._class):
            tower.__class__ = self._class
        self._restore(tower)

    def _restore(self, tower: nn.Module) -> None:
        if self._own is not None and "forward" not in vars(tower):
            vars(tower)["forward"] = self._own

    def _marked(self, tower: nn.Module) -> str:
        """What a `forward` of the instance adds to every signature: its code, and what that closes over."""
        if self._own is None:
            return ""
        compiled = "compiled-" if hasattr(self._own, "_torchdynamo_orig_callable") else ""
        if self._given is not None:
            return f"{compiled}{getattr(self._own, '__qualname__', type(self._own).__qualname__)}"
        check_signable(tower)
        return f"{compiled}{Signature.of(tower).digest.hex()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def refresh(self, signature: Signature | str | None = None) -> None:
        """Read the weights anew; where `signature=` named them, name their new version. Raises
        `UnversionedModelError`."""
        tower = self._tower()
        if tower is None:
            return
        if (signature is None) != (self._given is None):
            raise UnversionedModelError("give a new signature exactly where the tower was cached with one")
        with self._lock:
            self._given = None if signature is None else Signature.of(signature)
            self._sign(tower)

    @property
    def signature(self) -> Signature:
        """What the tower is identified by now."""
        return self._signature

    def stats(self) -> Asides:
        """Exact counters of this door; those of the cache are in `cache.stats()`."""
        return Asides(self._pictures, self._computed, dict(self._aside))

    def _sign(self, tower: nn.Module) -> None:
        check = self._given is None
        if check:
            check_signable(tower)
        found = Signature.of(tower) if self._given is None else self._given
        code = code_of(tower) if check else ""
        devices = sorted({str(p.device) for p in tower.parameters() if not p.is_meta})
        self._device = torch.device(devices[0]) if len(devices) == 1 else None
        kind = "+".join(sorted({name.partition(":")[0] for name in devices}))
        self._signature = replace(
            found,
            modality="image",
            function=" ".join(filter(None, (_FORMAT, self._layout.name, found.function, code, self._mark))),
            device=f"{found.device} {kind} torch-{torch.__version__}".strip(),
        )
        self._watch = Watch(tower)
        self._unsigned = False

    # A call ----------------------------------------------------------------------------------------------------------

    def forward(self, tower: nn.Module, call: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `call(*args, **kwargs)` gives, of which `call` computes what is not stored."""
        try:
            taken = self._take(tower, args, kwargs)
        except Aside as aside:
            return self._past(aside.reason, call, args, kwargs)
        except Exception as error:  # noqa: BLE001 - a failure of the cache is none of the model
            return self._past("cache", call, args, kwargs, error)
        run = Run(self, tower, call, *taken)
        try:
            return run.output()
        except Exception as error:
            if error is run.raised:
                raise
            reason = error.reason if isinstance(error, Aside) else "cache"
            if run.whole is None:
                return self._past(reason, call, args, kwargs, error)
            self._note(reason, error)
            return run.whole

    def _past(
        self, reason: str, call: Forward, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception | None = None
    ) -> Any:
        self._note(reason, error)
        return call(*args, **kwargs)

    def _note(self, reason: str, error: Exception | None = None) -> None:
        with self._lock:
            self._aside[reason] += 1
            first = self._aside[reason] == 1
        if first and reason != "off":
            more = f": {error!r}" if error is not None and not isinstance(error, Aside) else ""
            self._cache.events.emit(Failed("transformers", f"past the cache: {REASONS[reason]}{more}"))

    def _take(
        self, tower: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], list[Picture], list[Wanted], Watch, float]:
        """Everything that must be known before the cache may answer. Raises `Aside`."""
        started = time.perf_counter()
        if self._cache.mode == "off":
            raise Aside("off")
        if self._guard is not None and self._guard.bypass():
            raise Aside("guard")
        try:
            bound = self._parameters.bind(*args, **kwargs)
        except TypeError:
            raise Aside("argument") from None  # the tower will say so itself
        bound.apply_defaults()
        arguments: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = self._parameters.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                if value:
                    raise Aside("argument")
                continue
            arguments |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
        pictures = self._layout.take(arguments)
        usable(tower, pictures[0].pixels)
        watch = self._watched(tower)
        if self._device is None:
            raise Aside("pixels")
        scope = self._scope()
        own = self._layout.own(arguments)
        rest = {name: value for name, value in arguments.items() if name not in own}
        try:
            extra = canonical_arguments((numerics(tower, self._device.type),), rest)
            wanted = [Wanted(self._key(scope, picture, extra), scope, place) for place, picture in enumerate(pictures)]
        except InvalidInputError:
            raise Aside("argument") from None
        return arguments, pictures, wanted, watch, time.perf_counter() - started

    def _watched(self, tower: nn.Module) -> Watch:
        """The watch that says that nothing has changed; what did change is signed anew. Raises `Aside`."""
        watch = self._watch
        if not self._unsigned and watch.same(tower):
            return watch
        with self._lock:
            if self._watch is watch or self._unsigned:
                if self._given is not None:
                    raise Aside("weights")
                try:
                    self._sign(tower)
                except UnversionedModelError:
                    self._unsigned = True
                    raise Aside("unsigned") from None
            return self._watch

    def _scope(self) -> Scope:
        tenant = self._tenant
        if callable(tenant):
            try:
                tenant = tenant()
            except Exception:  # noqa: BLE001 - the caller's function
                raise Aside("tenant") from None
            if not isinstance(tenant, str) or not tenant:
                raise Aside("tenant")
        cache = self._cache
        return cache.scopes.of(
            self._signature,
            cache.tenant if tenant is None else tenant,
            cache.namespace if self._namespace is None else self._namespace,
            codec=self._at_rest,
        )

    def _key(self, scope: Scope, picture: Picture, extra: bytes) -> Key:
        beside = [
            framed("tensor", name.encode(), identify_array(value, "image", scope.salt).digest)
            if isinstance(value, torch.Tensor)
            else framed("numbers", name.encode(), canonical_arguments(value))
            for name, value in picture.beside
        ]
        pixels = identify_array(picture.pixels, "image", scope.salt).digest
        whole = framed("picture", pixels, extra, *beside)
        return Key(scope.digest, blake3(whole, key=scope.salt).digest(length=16))

    def _count(self, pictures: int, computed: int) -> None:
        with self._lock:
            self._pictures += pictures
            self._computed += computed
