"""Which judge it is: another judge's verdicts are not evidence for this one's promise."""

from __future__ import annotations

from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from blake3 import blake3

from mmcache.keys.framing import DIGEST_BYTES

_DEPTH, _MOST = 8, 1000
"""Values inside values that are looked at, and how many of one collection; of a larger one its length counts."""
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(...))


def identity(judge: Any) -> bytes:
    """16 bytes: equal for the same code with the same plain values at hand, also in another process.

    Of functions: module, name, bytecode, constants, defaults and closure; of other callables: class and plain
    attributes. Of values that are not plain (models, arrays, open files) only the class counts. Another Python may
    compile to other bytecode: then what was learned is learned anew.
    """
    words = _said(judge, _DEPTH)
    if not isinstance(judge, FunctionType | MethodType | partial | type):
        words += _attributes(judge)
    elif isinstance(judge, MethodType):
        words += _attributes(judge.__self__)
    return blake3(words.encode("utf-8", "surrogatepass")).digest(length=DIGEST_BYTES)


def _attributes(owner: Any) -> str:
    call = getattr(type(owner), "__call__", None)  # noqa: B004 - its code is wanted, not whether there is one
    code = call if isinstance(call, FunctionType) else None
    return _said([code, sorted(getattr(owner, "__dict__", {}).items())], _DEPTH)


def _said(value: Any, depth: int) -> str:
    """In words, without addresses and without the order of sets."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if depth == 0:
        return type(value).__qualname__
    if isinstance(value, list | tuple | set | frozenset | dict) and len(value) > _MOST:
        return f"{type(value).__qualname__} of {len(value)}"

    def said(parts: Any) -> list[str]:
        return [_said(part, depth - 1) for part in parts]

    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, list | tuple):
        return f"{name}{said(value)}"
    if isinstance(value, set | frozenset):
        return f"{name}{sorted(said(value))}"
    if isinstance(value, dict):
        return f"{name}{said(value.items())}"
    if isinstance(value, CodeType):
        return f"code{value.co_code.hex()}{said([value.co_consts, value.co_names, value.co_varnames])}"
    if isinstance(value, FunctionType):
        bound = [_content(cell) for cell in value.__closure__ or ()]
        parts: list[Any] = [value.__code__, value.__defaults__, value.__kwdefaults__, bound]
        return f"{value.__module__}.{value.__qualname__}{said(parts)}"
    if isinstance(value, MethodType):
        return f"method{said([value.__func__, value.__self__])}"
    if isinstance(value, partial):
        return f"partial{said([value.func, value.args, value.keywords])}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{name} {getattr(value, '__name__', '')}"  # C functions have one


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
