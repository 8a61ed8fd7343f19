"""`described`: all of a framework's component that may change what it computes, as text; equal for equal components.

Frameworks have such texts for their own caches, and these leave things out: functions (only their address differs),
private attributes, excluded fields, the weights behind a path. Here, a function counts by its code and what it closes
over, a folder of weights by its bytes. What only delivers (clients, callbacks, time limits, keys) does not count.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import json
import re
import weakref
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import UUID

import numpy as np
from blake3 import blake3

from mmcache.integrations.framework.code import kind_of, reads, release, written
from mmcache.keys.signing import Signature, files, modules, processors
from mmcache.keys.signing.facts import code_digest
from mmcache.keys.tensor import flat_bytes
from mmcache.model.errors import UnversionedModelError

SECRET = re.compile(
    r"(^|_)(api|access|secret|private|subscription|account|auth|bearer|hf|hub|refresh|session|ad|sas)_?(keys?|tokens?)$"
    r"|^(authorization|credentials?)$|(password|passwd|secret|_credentials?|token_provider)$"
)
DELIVERY = frozenset(
    ["callback_manager", "callbacks", "num_workers", "embed_batch_size", "batch_size", "max_retries", "timeout",
     "request_timeout", "default_timeout", "verbose", "show_progress", "show_progress_bar", "reuse_client",
     "http_socket_options", "disable_streaming"]
)  # fmt: skip
"""Names, without a leading underscore, of what delivers and does not compute. An address or a header does count."""
OBJECTS = frozenset(
    ["client", "async_client", "aclient", "root_client", "root_async_client", "http_client", "async_http_client",
     "http_async_client", "session", "rate_limiter", "cache", "embeddings_cache", "locator", "index", "vector_store",
     "vectorstore", "docstore", "storage_context", "index_struct", "graph_store"]
)  # fmt: skip
"""Names of objects that are clients, or hold documents: in which state these are, the caller says."""
UNORDERED = frozenset(["template_vars"])
"""Names of lists that frameworks make from sets: in another order in each process."""
NAMES = frozenset(
    ["collection", "collection_name", "index_name", "table_name", "namespace", "database", "db_name", "schema_name",
     "persist_dir", "persist_directory", "uri", "url", "host"]
)  # fmt: skip
"""What stores call the place in which they keep their documents."""
_PLACES = re.compile(r"(base|base_url|api_base_url|url|uri|endpoint|host)$")
"""What attributes are called that say where a model is served."""
MOST_PARTS = 20_000
_DEEPEST = 24
_MANY = 256
_PLAIN = {str, int, bytes, float, bool, type(None)}
_OPAQUE = frozenset(
    ["threading", "_thread", "weakref", "logging", "asyncio", "concurrent", "socket", "ssl", "httpx", "openai",
     "aiohttp", "requests"]
)  # fmt: skip


def described(component: Any, *, releases: bool = True) -> str:
    """JSON text. Raises `UnversionedModelError` for what is too large to be configuration.

    releases: whether it changes with the packages that the components come from.
    """
    return json.dumps(_Walk(releases).plain(component), sort_keys=True)


def settings_of(component: Any) -> str:
    """The same for a component of which its caller says what it is: empty where it cannot be described."""
    try:
        return described(component)
    except UnversionedModelError:
        return ""


class _Walk:
    def __init__(self, releases: bool) -> None:
        self._releases = releases
        self._parts = 0
        self._open: set[int] = set()

    def plain(self, value: Any, depth: int = 0) -> Any:
        self._parts += 1
        if self._parts > MOST_PARTS or depth > _DEEPEST:
            raise UnversionedModelError(
                "a component holds too much to be described by its content; say signature='…', and change it whenever "
                "what it computes may change"
            )
        match value:
            case enum.Enum():
                return [kind_of(type(value)), value.name]
            case None | bool():
                return value
            case str():
                return str.__str__(value)
            case int() | float() | complex():
                return [type(value).__name__, repr(value)]
            case bytes() | bytearray():
                return ["bytes", blake3(value).hexdigest()]
            case PurePath() | UUID() | date() | timedelta() | range():
                return [type(value).__name__, str(value)]
            case np.ndarray() | np.generic():
                array = np.asarray(value)
                if array.dtype.hasobject:
                    return ["objects", array.shape, self.plain(array.tolist(), depth + 1)]
                return [
                    "array",
                    array.dtype.str,
                    array.shape,
                    blake3(np.ascontiguousarray(array).tobytes()).hexdigest(),
                ]
            case type() | ModuleType():
                schema = getattr(value, "model_json_schema", None)
                own = [written(value)] if isinstance(value, type) else []
                return ["name", kind_of(value), *own, *([self.plain(schema(), depth + 1)] if callable(schema) else [])]
        if hasattr(value, "get_secret_value") or hasattr(value, "resolve_value"):
            return ["secret"]
        if id(value) in self._open:
            return ["open"]
        self._open.add(id(value))
        try:
            return self._content(value, depth + 1)
        finally:
            self._open.discard(id(value))

    def _content(self, value: Any, depth: int) -> Any:
        match value:
            case Mapping() if len(value) > _MANY and all(type(x) in _PLAIN for pair in value.items() for x in pair):
                return [
                    "dict",
                    blake3(repr(sorted(map(repr, value.items()))).encode("utf-8", "surrogatepass")).hexdigest(),
                ]
            case Mapping():
                pairs = [
                    [self.plain(k, depth), self.plain(v, depth)]
                    for k, v in value.items()
                    if not (isinstance(k, str) and SECRET.search(_bare(k)))
                ]
                return ["dict", *pairs]  # in their order: templates and examples are shown in it
            case list() | tuple() if len(value) > _MANY and all(type(item) in _PLAIN for item in value):
                return [type(value).__name__, _digest(repr(list(value)))]
            case list() | tuple():
                return [type(value).__name__, *(self.plain(item, depth) for item in value)]
            case set() | frozenset():
                return ["set", *sorted(json.dumps(self.plain(item, depth)) for item in value)]
            case functools.partial():
                return ["partial", *(self.plain(part, depth) for part in (value.func, value.args, value.keywords))]
            case MethodType():
                return ["method", self.plain(value.__func__, depth), self.plain(value.__self__, depth)]
            case FunctionType():
                return self._function(value, depth)
            case BuiltinFunctionType():
                return ["builtin", kind_of(value), self.plain(getattr(value, "__self__", None), depth)]
        if hasattr(value, "facts_for_keys"):
            return [kind_of(type(value)), value.facts_for_keys()]
        if modules.is_module(value) or files.is_session(value) or processors.is_processor(value):
            return ["signed", _signed(value)]
        if type(value).__module__ == "torch" and hasattr(value, "detach"):
            return ["tensor", str(value.dtype), list(value.shape), self.plain(flat_bytes(value.detach()), depth)]
        if type(value).__module__.startswith("tiktoken"):
            return ["tiktoken", value.name]
        if hasattr(value, "__wrapped__"):
            return ["wrapped", self.plain(value.__wrapped__, depth), self._object(value, depth)]
        return self._object(value, depth)

    def _function(self, function: FunctionType, depth: int) -> Any:
        wrapped = getattr(function, "__wrapped__", None)
        held = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
        held = [part for part in held if part is not wrapped]
        parts = [function.__defaults__, function.__kwdefaults__, held, wrapped, list(reads(function))]
        return ["function", kind_of(function), code_digest(function.__code__), *(self.plain(p, depth) for p in parts)]

    def _object(self, value: Any, depth: int) -> Any:
        kind: Any = type(value)
        name = [kind_of(kind), written(kind), release(kind.__module__) if self._releases else ""]
        if kind.__module__.partition(".")[0] in _OPAQUE:
            return [*name, _address(value)]
        held = dict(getattr(value, "__dict__", None) or {})
        held |= getattr(value, "__pydantic_private__", None) or {}
        held |= getattr(value, "__pydantic_extra__", None) or {}
        slots = [slot for one in kind.__mro__ for slot in _listed(vars(one).get("__slots__", ()))]
        held |= {slot: getattr(value, slot) for slot in slots if hasattr(value, slot) and not slot.startswith("__")}
        # What is None may be made at the first use: None counts as not there.
        known = {key: item for key, item in held.items() if item is not None and not key.startswith("__")}
        if not known and (hasattr(value, "__name__") or not hasattr(value, "__dict__")):
            return [*name, *self._reduced(value, depth)]
        kept = {key: item for key, item in known.items() if not delivers(key, item)}
        kept |= {name: sorted(kept[name]) for name in UNORDERED & kept.keys()}
        return [*name, [[key, self.plain(kept[key], depth)] for key in sorted(kept)], *served(known), *_stored(known)]

    def _reduced(self, value: Any, depth: int) -> list[Any]:
        """Of what shows no attributes (a compiled pattern, an `itemgetter`): what it could be made again from."""
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            made = value.__reduce_ex__(2) if reduce is None else reduce(value)
        except Exception:  # noqa: BLE001 - a connection, a lock, a native object: its name is all there is to see
            return [str(getattr(value, "__name__", ""))]
        if isinstance(made, str):
            return [made]
        parts = [*made[1:3], *(None if one is None else list(one) for one in made[3:5])]
        return [self.plain(part, depth) for part in parts]


def _listed(slots: str | Sequence[str]) -> Sequence[str]:
    return [slots] if isinstance(slots, str) else list(slots)


def _bare(name: str) -> str:
    return name.lower().lstrip("_").replace("-", "_")


def delivers(name: str, value: Any) -> bool:
    """Whether what a component holds under this name changes nothing of what it computes."""
    bare = _bare(name)
    is_object = not isinstance(value, str | int | float | list | tuple | dict | set)
    return bare in DELIVERY or (bare in OBJECTS and is_object) or SECRET.search(bare) is not None


def _address(value: Any) -> str:
    """Where a client, or a part of one, sends its requests."""
    found = getattr(value, "base_url", None) or getattr(getattr(value, "_client", None), "base_url", None)
    return "" if found is None else str(found).rpartition("@")[2].partition("?")[0]


def served(held: dict[str, Any]) -> list[str]:
    """Addresses of clients that were made from the environment: where nothing else says where the model is served."""
    if any(isinstance(item, str) and item and _PLACES.search(_bare(key)) for key, item in held.items()):
        return []
    return sorted({_address(item) for key, item in held.items() if _bare(key) in OBJECTS} - {""})


def _stored(held: dict[str, Any]) -> list[str]:
    """Which stores are held, by their names: what is in them, and in which version, the caller says."""
    told = []
    for name, store in sorted(held.items()):
        if _bare(name) in OBJECTS and hasattr(store, "__dict__"):
            kept = {**vars(store), **(getattr(store, "__pydantic_private__", None) or {})}
            places = {key: place for key, place in kept.items() if isinstance(place, str) and _bare(key) in NAMES}
            told += [f"{name} {key} {place.rpartition('@')[2]}" for key, place in sorted(places.items())]
    return told


def _digest(text: str) -> str:
    return blake3(text.encode("utf-8", "surrogatepass")).hexdigest()


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


_signatures: weakref.WeakKeyDictionary[Any, tuple[Any, str]] = weakref.WeakKeyDictionary()


def _signed(model: Any) -> str:
    """Weights are read again where something wrote to them; what is written past autograd (`.data`) is not seen."""
    marks = _marks(model)
    try:
        known = _signatures.get(model)
        if known is None or known[0] != marks:
            known = _signatures[model] = marks, Signature.of(model).digest.hex()
        return known[1]
    except TypeError:  # has no weak references
        return Signature.of(model).digest.hex()


def _marks(model: Any) -> list[Any]:
    """What changes when weights of a module are written to; nothing for anything else."""
    if not modules.is_module(model):
        return []
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return [model.training, *((name, one.data_ptr(), one._version) for name, one in tensors)]
