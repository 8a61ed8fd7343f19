"""Which code is it? Functions and classes by what is written in them, or by the release that they come from."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from types import CodeType, FunctionType
from typing import Any

from blake3 import blake3

from mmcache.keys.signing.facts import code_digest

_CONSTANTS = {str, int, bytes, float, bool, complex, type(None), re.Pattern}


def kind_of(named: Any) -> str:
    """Module and name of a class or function."""
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', getattr(named, '__name__', ''))}"


@functools.lru_cache(maxsize=1024)
def release(module: str) -> str:
    """Version of the distribution that a module is of: what it does may change with it. Empty for one's own code."""
    parts = module.replace("_", "-").split(".")
    for count in (3, 2, 1):
        try:
            return version("-".join(parts[:count]))
        except (PackageNotFoundError, ValueError):
            continue
    return ""


def written(kind: type[Any]) -> str:
    """The code of a class that is of no distribution, and the constants that it reads: somebody's own, which is edited
    without a new version."""
    own = [one for one in kind.__mro__ if _is_own(one.__module__)]
    parts = [part for one in own for part in (_code(one), *_constants(one), *_read(one))]
    return blake3("|".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16] if any(parts) else ""


def reads(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function of somebody's own reads of its module: constants and functions, by name.

    Lists, dicts and other objects are not told: they are data, which may change with each call.
    """
    for name in sorted(_names(function.__code__)) if _is_own(function.__module__ or "") else ():
        value = function.__globals__.get(name)
        own = isinstance(value, FunctionType | type) and _is_own(value.__module__ or "")
        if own or (name in function.__globals__ and is_constant(value)):
            yield name, value


def is_constant(value: Any) -> bool:
    """Whether it cannot change, and says all about itself."""
    return type(value) in _CONSTANTS or (type(value) in (tuple, frozenset) and all(map(is_constant, value)))


def _is_own(module: str) -> bool:
    root = module.partition(".")[0]
    return (root == "__main__" or root not in sys.stdlib_module_names) and not release(module)


def _names(code: CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


@functools.lru_cache(maxsize=1024)
def _functions(kind: Any) -> list[tuple[str, FunctionType]]:
    found = []
    for name, held in sorted(vars(kind).items()):
        function = getattr(held, "__func__", getattr(held, "fget", held))
        function = inspect.unwrap(function) if callable(function) else function
        if isinstance(function, FunctionType):
            found.append((name, function))
    return found


@functools.lru_cache(maxsize=1024)
def _code(kind: Any) -> str:
    return "|".join(f"{name}:{code_digest(function.__code__)}" for name, function in _functions(kind))


def _read(kind: Any) -> list[str]:
    """Constants of the module that methods read, and the code of functions that they call, so far and no further."""
    told = [pair for _, function in _functions(kind) for pair in reads(function)]
    codes = [(name, code_digest(value.__code__)) for name, value in told if isinstance(value, FunctionType)]
    return [f"{name}={_text(value)}" for name, value in [*codes, *((n, v) for n, v in told if is_constant(v))]]


def _constants(kind: type[Any]) -> list[str]:
    """Of a class's body; what Python and frameworks note there stands under names with underscores around."""
    told = ((name, value) for name, value in sorted(vars(kind).items()) if not name.startswith(("__", "_abc_")))
    return [f"{name}={_text(value)}" for name, value in told if is_constant(value)]


def _text(value: Any) -> str:
    return "{" + ",".join(sorted(map(_text, value))) + "}" if isinstance(value, frozenset) else repr(value)
