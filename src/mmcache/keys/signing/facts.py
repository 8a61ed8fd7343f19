"""What a module's plain attributes, hooks and functions are, as JSON: by content wherever content is known.

An attribute may hold whatever a forward pass reads: tensors outside of the buffers, modules in a plain list, private
numbers, configuration objects, hooks. Two values that differ must not look equal; equal ones that look different
cost a miss. Addresses never enter, so that every process finds the same.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from blake3 import blake3

from mmcache.model.errors import UnversionedModelError

VOLATILE = frozenset(
    {"_name_or_path", "name_or_path", "transformers_version", "_commit_hash", "_attn_implementation_autoset"}
)
"""Configuration entries that say where a model came from, not what it does."""

_DEEPEST = 64
_DEEPEST_OBJECT = 6
"""Objects of foreign classes are looked into so far; beyond it their class stands for them."""
_OPAQUE = ("logging", "threading", "_thread", "weakref", "builtins")


class Facts:
    """`plain(value)` for the attributes of one model.

    `names`: id → name of its registered submodules, parameters and buffers, which are digested elsewhere.
    `module`, `tensor`: digests of those that are not registered.
    """

    def __init__(self, names: dict[int, str], module: Callable[[Any], str], tensor: Callable[[Any], str]) -> None:
        self._names, self._module, self._tensor = names, module, tensor
        self._open: set[int] = set()
        self._configs: dict[int, tuple[Any, Any]] = {}

    def plain(self, value: Any, depth: int = 0) -> Any:
        """JSON-able. Raises `UnversionedModelError` for what is nested without end."""
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        if type(value) is float:
            return value.hex()
        if depth > _DEEPEST:
            raise UnversionedModelError("an attribute is nested too deeply to be signed; pass a version")
        if name := self._names.get(id(value)):
            return ["registered", name]
        if id(value) in self._open:
            return ["open"]
        self._open.add(id(value))
        try:
            return self._content(value, depth + 1)
        finally:
            self._open.discard(id(value))

    def _content(self, value: Any, depth: int) -> Any:
        torch: Any = sys.modules["torch"]
        match value:
            case enum.Enum():
                return [_kind(type(value)), value.name]
            case torch.Tensor():
                return ["tensor", self._tensor(value)]
            case torch.nn.Module():
                return ["module", self._module(value)]
            case np.ndarray() | np.generic():
                return self._array(np.asarray(value), depth)
            case list() | tuple():
                return [_kind(type(value)) if hasattr(value, "_fields") else "", *(self.plain(v, depth) for v in value)]
            case set() | frozenset():
                return ["set", *sorted(json.dumps(self.plain(item, depth)) for item in value)]
            case Mapping():
                pairs = [[self.plain(k, depth), self.plain(v, depth)] for k, v in value.items() if k not in VOLATILE]
                return ["dict", *sorted(pairs, key=json.dumps)]
            case bytes() | bytearray():
                return ["bytes", blake3(value).hexdigest()]
            case int() | float() | complex() | range() | slice():
                return [_kind(type(value)), repr(value)]
            case functools.partial():
                return ["partial", *(self.plain(v, depth) for v in (value.func, value.args, value.keywords))]
            case MethodType():
                return ["method", self._function(value.__func__, depth), self.plain(value.__self__, depth)]
            case FunctionType():
                return self._function(value, depth)
        if type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device"):
            return str(value)
        if isinstance(value, type | ModuleType) or hasattr(value, "__qualname__"):
            return f"<{_kind(value)}>"
        return self._object(value, depth)

    def _array(self, array: np.ndarray[Any, Any], depth: int) -> Any:
        if array.dtype.hasobject:
            return ["array", array.shape, self.plain(array.tolist(), depth)]
        return ["array", array.dtype.str, array.shape, blake3(np.ascontiguousarray(array).tobytes()).hexdigest()]

    def _function(self, function: Any, depth: int) -> Any:
        """By name, code, defaults, and what it closes over."""
        held: list[Any] = []
        if depth < _DEEPEST_OBJECT:
            cells = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
            held = [self.plain(each, depth) for each in (function.__defaults__, function.__kwdefaults__, cells)]
        return ["function", _kind(function), code_digest(function.__code__), *held]

    def _object(self, value: Any, depth: int) -> Any:
        name = f"<{_kind(type(value))}>"
        if type(value).__module__.partition(".")[0] in _OPAQUE or depth >= _DEEPEST_OBJECT:
            return name
        if hasattr(value, "to_dict"):  # every layer of a transformers model holds the one configuration
            if id(value) not in self._configs:
                self._configs[id(value)] = (value, self.plain(value.to_dict(), depth))
            return [name, self._configs[id(value)][1]]
        if dataclasses.is_dataclass(value):
            return [name, self.plain({f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}, depth)]
        held = {key: item for key, item in getattr(value, "__dict__", {}).items() if not key.startswith("__")}
        return [name, self.plain(held, depth)] if held else name


def _kind(named: Any) -> str:
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', getattr(named, '__name__', ''))}"


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


@functools.lru_cache(maxsize=4096)
def code_digest(code: CodeType) -> str:
    """Of a function's instructions, names and constants: an edited one differs, wherever its file lies."""
    constants = [code_digest(c) if isinstance(c, CodeType) else _constant(c) for c in code.co_consts]
    text = repr((code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants))
    return blake3(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _constant(value: Any) -> str:
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def forward_digest(kind: type) -> str:
    """Of the code of a module class's `forward`; empty where it is not written in Python."""
    code = getattr(inspect.unwrap(getattr(kind, "forward", None) or kind), "__code__", None)
    return code_digest(code) if isinstance(code, CodeType) else ""
