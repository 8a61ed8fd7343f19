"""A model's output as a skeleton and its arrays, and back. Nothing stored is ever imported, executed or guessed.

The skeleton (`tree`) is msgpack-able. A node is one of

    None, bool, int, float, str     itself
    [0]                             the next leaf
    [1, nodes]  [2, nodes]          list, tuple
    [3, keys, nodes]                dict (str and int keys)
    [4, name, fields, nodes]        a type that the caller declared
    [4, name, fields, nodes, keys]  a dataclass that is also a dict; its items are the fields of these names

Leaves are numbered by the order in which a walk of the tree meets them, so no index can be wrong or shared.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from sys import getsizeof
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mmcache.codecs import torch_leaf
from mmcache.model.errors import CorruptFrameError, UnsupportedValueError

Array = npt.NDArray[np.generic]
Tree = Any
Make = Callable[[], object]

MAX_DEPTH = 64
MAX_NODES = 1 << 17
INLINE_STRING_BYTES = 256
INLINE_LIST_ITEMS = 16
"""Longer strings, and longer lists of only floats or only ints, become leaves: the header stays small."""

_CLOSURE_BYTES, _COPY_BYTES, _KEPT_BYTES = 250, 90, 600
"""What a maker takes: function and cells; a bound `copy`; a leaf in a tuple, its header (CPython 3.11)."""

_INLINE = {type(None), bool, int, float, str}

_LEAF, _LIST, _TUPLE, _DICT, _DECLARED = range(5)

ALLOWED = (
    "numpy arrays and scalars, torch tensors, bytes, str, int (64 bits), float, bool, None, and lists, tuples, dicts "
    "(str or int keys), declared dataclasses, namedtuples or mappings of those"
)


class Flat(NamedTuple):
    """A value taken apart. `leaves` are C-contiguous arrays; `kinds` say what each one was."""

    tree: Tree
    leaves: tuple[Array, ...]
    kinds: tuple[str, ...]


class Structures:
    """The types, besides builtins, that values may hold and that hits are rebuilt as. Only what was declared."""

    def __init__(self) -> None:
        self._by_name: dict[str, type] = {}

    def declare(self, cls: type) -> None:
        """Allow a dataclass, a namedtuple, or a mapping that is made from one dict (e.g. a `ModelOutput`).

        A dataclass comes back with all its fields as they were: neither `__init__` nor `__post_init__` runs again.
        Raises `UnsupportedValueError` for any other type.
        """
        if dataclasses.is_dataclass(cls):
            try:
                _bare(cls)
            except TypeError as error:
                raise UnsupportedValueError(f"{cls.__qualname__} holds more than its fields: {error}") from error
        elif not (hasattr(cls, "_make") or issubclass(cls, Mapping)):
            raise UnsupportedValueError(
                f"{cls.__qualname__} is not a dataclass, a namedtuple or a mapping; return one of those"
            )
        self._by_name[_name(cls)] = cls

    def holds(self, cls: type) -> bool:
        """Whether exactly this type was declared."""
        return self._by_name.get(_name(cls)) is cls

    def find(self, name: str) -> type:
        """The declared type of that name. Raises `UnsupportedValueError`."""
        try:
            return self._by_name[name]
        except KeyError:
            raise UnsupportedValueError(
                f"a stored value holds a {name}, which was not declared here; pass it in `returns=[…]`"
            ) from None


def flatten(value: object, structures: Structures | None = None) -> Flat:
    """Take a value apart. Raises `UnsupportedValueError` saying where and what is allowed.

    Arrays keep dtype, byte order and shape, not strides; tensors are detached and taken to the CPU.
    """
    walk = _Walk(structures or Structures())
    tree = walk.node(value, "value", 0)
    return Flat(tree, tuple(walk.leaves), tuple(walk.kinds))


class _Walk:
    def __init__(self, structures: Structures) -> None:
        self.structures = structures
        self.leaves: list[Array] = []
        self.kinds: list[str] = []
        self.nodes = 0

    def node(self, value: object, path: str, depth: int) -> Tree:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise UnsupportedValueError(f"{path[:80]}: nested too deeply, or too many items; return an array instead")
        # Exact types: a subclass (an IntEnum, a masked array) would come back as something else.
        match value:
            case None | bool():
                return value
            case np.str_() | np.bytes_() if value != np.asarray(value)[()]:
                raise UnsupportedValueError(f"{path}: numpy drops the NUL at the end of {value!r}; return str or bytes")
            case np.generic():
                return self.leaf(np.asarray(value), "scalar", path)
            case int() if type(value) is int and -(1 << 63) <= value < 1 << 64:
                return value
            case float() if type(value) is float:
                return value
            case str() if type(value) is str:
                return self.text(value)
            case bytes() if type(value) is bytes:
                return self.leaf(np.frombuffer(value, np.uint8), "bytes", path)
            case np.ndarray() if type(value) in (np.ndarray, np.memmap):
                return self.leaf(np.asarray(value, order="C"), "numpy", path)
            case list() if type(value) is list:
                return self.sequence(value, path, depth)
            case tuple() if type(value) is tuple:
                return [_TUPLE, self.items(value, path, depth)]
            case dict() if type(value) is dict:
                return [_DICT, self.keys(value, path), self.items(value.values(), path, depth)]
        if torch_leaf.is_tensor(value):
            array, kind = torch_leaf.take(value, path)
            return self.leaf(array, kind, path)
        return self.declared(value, path, depth)

    def leaf(self, array: Array, kind: str, path: str) -> Tree:
        dtype = array.dtype
        if dtype.hasobject or not dtype.itemsize or np.dtype(dtype.str) != dtype:
            raise UnsupportedValueError(f"{path}: arrays of dtype {dtype} cannot be stored; convert to a plain dtype")
        self.leaves.append(array)
        self.kinds.append(kind)
        return [_LEAF]

    def text(self, value: str) -> Tree:
        # Lone surrogates are legal in str and illegal in msgpack.
        raw = value.encode("utf-8", "surrogatepass")
        if len(raw) <= INLINE_STRING_BYTES and not any("\ud800" <= c <= "\udfff" for c in value):
            return value
        return self.leaf(np.frombuffer(raw, np.uint8), "str", "")

    def sequence(self, value: list[Any], path: str, depth: int) -> Tree:
        if len(value) > INLINE_LIST_ITEMS:
            kinds = set(map(type, value))
            if kinds == {float}:
                return self.leaf(np.array(value, np.float64), "list", path)
            if kinds == {int} and -(1 << 63) <= min(value) <= max(value) < 1 << 63:
                return self.leaf(np.array(value, np.int64), "list", path)
        return [_LIST, self.items(value, path, depth)]

    def items(self, values: Any, path: str, depth: int) -> list[Tree]:
        return [self.node(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(values)]

    def keys(self, value: Mapping[Any, object], path: str) -> list[str | int]:
        for key in value:
            sound = key.isprintable() if type(key) is str else type(key) is int and -(1 << 63) <= key < 1 << 64
            if not sound:
                raise UnsupportedValueError(f"{path}: dict keys are printable str or 64-bit int, not {key!r:.80}")
        return list(value)

    def declared(self, value: object, path: str, depth: int) -> Tree:
        cls = type(value)
        if not self.structures.holds(cls):
            known = dataclasses.is_dataclass(cls) or isinstance(value, (tuple, Mapping))
            advice = "declare it: `returns=[…]`" if known else f"allowed are {ALLOWED}"
            raise UnsupportedValueError(f"{path}: a {_name(cls)} cannot be stored; {advice}")
        if (fields := _fields(cls)) is not None:
            values = _values(value, fields, path)
        else:
            assert isinstance(value, Mapping)
            fields, values = self.keys(value, path), list(value.values())
        nodes = self.items(values, path, depth)
        if not dataclasses.is_dataclass(cls) or (base := _base(cls)) is object:
            return [_DECLARED, _name(cls), fields, nodes]
        items, fields_now = dict(base.items(value)), dict(zip(fields, values, strict=True))
        if any(fields_now.get(key, self) is not item for key, item in items.items()):
            raise UnsupportedValueError(f"{path}: the items of a {_name(cls)} are not its fields and would be lost")
        return [_DECLARED, _name(cls), fields, nodes, list(items)]


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _fields(cls: type) -> list[str | int] | None:
    """Field names in order; None for a mapping, whose keys are its fields."""
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    return list(getattr(cls, "_fields", ())) if hasattr(cls, "_make") else None


def _values(value: Any, fields: list[str | int], path: str) -> list[object]:
    """The fields' values. Raises `UnsupportedValueError` when there is more to the value, which would be lost."""
    cls = type(value)
    try:
        values = [getattr(value, str(field)) for field in fields]
    except AttributeError as error:
        raise UnsupportedValueError(f"{path}: a {_name(cls)} without all its fields cannot be stored") from error
    more = [name for name in getattr(value, "__dict__", ()) if name not in fields]
    if lost := [name for name in more if not isinstance(getattr(cls, name, None), cached_property)]:
        raise UnsupportedValueError(f"{path}: {lost[0]!r} of a {_name(cls)} is no field and would be lost")
    return values


def _base(cls: type) -> Any:
    return next(base for base in (OrderedDict, dict, object) if issubclass(cls, base))


def _bare(cls: type) -> Any:
    """An instance without fields; runs nothing of the type's own. `TypeError`: its data are not (only) fields."""
    return _base(cls).__new__(cls)


def _restored(cls: type, fields: list[str], makers: list[Make], keys: list[str]) -> object:
    """A dataclass with these fields, as copying makes it, and in a dict (a `ModelOutput`) some of them as items too."""
    made, base = _bare(cls), _base(cls)
    values = {field: make() for field, make in zip(fields, makers, strict=True)}
    for field, value in values.items():
        object.__setattr__(made, field, value)  # frozen types too
    for key in keys:
        base.__setitem__(made, key, values[key])
    return made


class Built(NamedTuple):
    """A skeleton made ready. `make` gives a fresh value each call; `constant`: immutable all through.

    `held`: bytes that it takes besides payload and skeleton, about.
    """

    make: Make
    constant: bool
    held: int


def unflatten(tree: Tree, leaves: Sequence[Built], structures: Structures) -> Built:
    """Make a skeleton ready for use with the makers of its leaves.

    `tree` is untrusted: raises `CorruptFrameError` for anything that `flatten` would not write, and
    `UnsupportedValueError` for a type that was not declared here or has other fields now.
    """
    build = _Build(list(reversed(leaves)), structures)
    built = build.node(tree, 0)
    if build.leaves:
        raise CorruptFrameError("a stored value has more leaves than places for them")
    return built


class _Build:
    def __init__(self, leaves: list[Built], structures: Structures) -> None:
        self.leaves = leaves
        self.structures = structures
        self.nodes = 0

    def node(self, tree: Tree, depth: int) -> Built:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise CorruptFrameError("a stored value is nested too deeply, or has too many items")
        if tree is None or type(tree) in (bool, int, float, str):
            return Built(lambda: tree, True, _CLOSURE_BYTES + own_bytes([tree]))
        match tree:
            case [0] if self.leaves:
                return self.leaves.pop()
            case [1, list(nodes)] if self.inline(nodes, depth):
                return Built(nodes.copy, False, _COPY_BYTES + getsizeof(nodes) + own_bytes(nodes))
            case [1, list(nodes)]:
                makers, held = _makers(self.all(nodes, depth))
                return Built(lambda: [make() for make in makers], False, held)
            case [2, list(nodes)]:
                return _tuple(nodes, self.all(nodes, depth))
            case [3, list(keys), list(nodes)]:
                _check_keys(keys, nodes)
                if self.inline(nodes, depth):
                    whole = dict(zip(keys, nodes, strict=True))
                    return Built(
                        whole.copy, False, _COPY_BYTES + getsizeof(whole) + own_bytes(keys) // 2 + own_bytes(nodes)
                    )
                makers, held = _makers(self.all(nodes, depth), keys)
                return Built(lambda: {key: make() for key, make in zip(keys, makers, strict=True)}, False, held)
            case [4, str(name), list(fields), list(nodes)]:
                return self.declared(name, fields, nodes, [], depth)
            case [4, str(name), list(fields), list(nodes), list(keys)] if all(key in fields for key in keys):
                return self.declared(name, fields, nodes, keys, depth)
        raise CorruptFrameError("a stored value's skeleton has a node of no known form")

    def all(self, nodes: list[Tree], depth: int) -> list[Built]:
        return [self.node(node, depth + 1) for node in nodes]

    def inline(self, nodes: list[Any], depth: int) -> bool:
        """Whether these are all plain values, which need no makers: a container of them is copied."""
        if depth >= MAX_DEPTH or not _INLINE.issuperset(map(type, nodes)):
            return False
        self.nodes += len(nodes)
        return self.nodes <= MAX_NODES

    def declared(self, name: str, fields: list[Any], nodes: list[Any], keys: list[Any], depth: int) -> Built:
        _check_keys(fields, nodes)
        makers, held = _makers(self.all(nodes, depth), fields)
        cls: Any = self.structures.find(name)
        declared = _fields(cls)
        if declared is None:
            return Built(lambda: cls({f: make() for f, make in zip(fields, makers, strict=True)}), False, held)
        if declared != fields:
            raise UnsupportedValueError(f"a stored {name} has the fields {fields}, the type now has {declared}")
        if keys and not issubclass(cls, dict):
            raise UnsupportedValueError(f"a stored {name} is a dict, the type now is not")
        if issubclass(cls, tuple):
            return Built(lambda: cls._make([make() for make in makers]), False, held)
        return Built(partial(_restored, cls, fields, makers, keys), False, held)


def _check_keys(keys: list[Any], nodes: list[Any]) -> None:
    if len(keys) != len(nodes) or not {type(key) for key in keys} <= {str, int} or len(set(keys)) != len(keys):
        raise CorruptFrameError("a stored value's keys do not fit its items")


def _makers(parts: list[Built], keys: Sequence[object] = ()) -> tuple[list[Make], int]:
    """The makers of a container's items, and what the container's own maker holds."""
    makers = [built.make for built in parts]
    held = _CLOSURE_BYTES + getsizeof(makers) + sum([built.held for built in parts])
    return makers, held + getsizeof(keys) + own_bytes(keys) if keys else held


def _tuple(nodes: list[Tree], parts: list[Built]) -> Built:
    makers, held = _makers(parts)
    if all(built.constant for built in parts):
        whole = tuple([make() for make in makers])
        held = _CLOSURE_BYTES + getsizeof(whole) + _KEPT_BYTES * nodes.count([_LEAF])
        held += sum(
            [built.held if type(item) is tuple else own_bytes([item]) for built, item in zip(parts, whole, strict=True)]
        )
        return Built(lambda: whole, True, held)
    return Built(lambda: tuple([make() for make in makers]), False, held)


def own_bytes(values: Iterable[object]) -> int:
    """Bytes of these immutable objects; those that the interpreter shares are free."""
    return sum([
        getsizeof(value)
        for value in values
        if not (value is None or type(value) is bool or (type(value) is int and -6 < value < 257))
    ])  # fmt: skip
