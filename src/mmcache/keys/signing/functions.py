"""Which function is it? What a version string alone does not say."""

from __future__ import annotations

import functools
import inspect
from types import CodeType
from typing import Any

from blake3 import blake3

from mmcache.keys.arguments import canonical_arguments
from mmcache.model.errors import InvalidInputError


def function_identity(function: Any) -> str:
    """Module and name, and what tells functions of one name apart: bound arguments, closures, defaults, lambdas' code.

    An object that has no canonical bytes (a model that a method, partial or closure holds) counts by its type only:
    which one it is, the version must say.
    """
    if isinstance(function, functools.partial):
        return f"{function_identity(function.func)}({_digest(function.args, function.keywords)})"
    if inspect.ismethod(function):
        owner = function.__self__
        cls = owner if isinstance(owner, type) else type(owner)
        return f"{cls.__module__}.{cls.__qualname__}.{function.__func__.__name__}"
    named = function if hasattr(function, "__qualname__") else type(function)
    name = f"{getattr(named, '__module__', '')}.{named.__qualname__}"
    code = getattr(function, "__code__", None)
    if code is None:
        return name
    # What a closure holds and may change by itself (a list, a dict) says nothing of which function it is.
    cells = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    held = [type(value).__qualname__ if isinstance(value, list | dict | set) else value for value in cells]
    defaults = [function.__defaults__, function.__kwdefaults__]
    marks = [_code(code)] if "<lambda>" in name else []
    if held or any(defaults):
        marks.append(_digest(held, {"defaults": defaults}))
    return "#".join([name, *marks])


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises while the variable has no value
    except ValueError:
        return False
    return True


def _digest(values: Any, named: dict[str, Any]) -> str:
    return blake3(canonical_arguments([*map(_plain, values)], {k: _plain(v) for k, v in named.items()})).hexdigest()[
        :16
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    try:
        canonical_arguments([value])
    except InvalidInputError:
        is_function = inspect.isroutine(value) or isinstance(value, functools.partial)
        return [
            "object",
            function_identity(value) if is_function else f"{type(value).__module__}.{type(value).__qualname__}",
        ]
    return value


def _code(code: CodeType) -> str:
    hasher = blake3(code.co_code)
    for constant in code.co_consts:
        hasher.update((_code(constant) if isinstance(constant, CodeType) else repr(constant)).encode() + b"\0")
    hasher.update("\0".join([*code.co_names, *code.co_freevars]).encode())
    return hasher.hexdigest()[:16]
