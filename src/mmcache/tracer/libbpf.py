"""libbpf by ctypes: what a trace needs of it, each refusal a `TracerError`. Version 1.0 or later."""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_int,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache

from mmcache.model.errors import TracerError

NEEDS = "tracing needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE"

_LIBRARY = "libbpf.so.1"

OnMark = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)
_VOID = c_void_p
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "libbpf_set_print": (_VOID, [_VOID]),
    "bpf_object__open_mem": (_VOID, [c_char_p, c_size_t, _VOID]),
    "bpf_object__load": (c_int, [_VOID]),
    "bpf_object__close": (None, [_VOID]),
    "bpf_object__find_map_by_name": (_VOID, [_VOID, c_char_p]),
    "bpf_object__find_program_by_name": (_VOID, [_VOID, c_char_p]),
    "bpf_object__next_program": (_VOID, [_VOID, _VOID]),
    "bpf_program__name": (c_char_p, [_VOID]),
    "bpf_program__set_autoload": (c_int, [_VOID, c_bool]),
    "bpf_map__fd": (c_int, [_VOID]),
    "bpf_map__value_size": (c_uint32, [_VOID]),
    "bpf_map__set_initial_value": (c_int, [_VOID, _VOID, c_size_t]),
    "bpf_map__set_max_entries": (c_int, [_VOID, c_uint32]),
    "bpf_program__attach": (_VOID, [_VOID]),
    "bpf_program__attach_uprobe_opts": (_VOID, [_VOID, c_int, c_char_p, c_size_t, _VOID]),
    "bpf_link__destroy": (c_int, [_VOID]),
    "bpf_map_lookup_batch": (c_int, [c_int, _VOID, _VOID, _VOID, _VOID, POINTER(c_uint32), _VOID]),
    "bpf_map_lookup_elem": (c_int, [c_int, _VOID, _VOID]),
    "bpf_map_update_elem": (c_int, [c_int, _VOID, _VOID, c_uint64]),
    "bpf_map_delete_elem": (c_int, [c_int, _VOID]),
    "bpf_map_get_next_key": (c_int, [c_int, _VOID, _VOID]),
    "ring_buffer__new": (_VOID, [c_int, OnMark, _VOID, _VOID]),
    "ring_buffer__poll": (c_int, [_VOID, c_int]),
    "ring_buffer__consume": (c_int, [_VOID]),
    "ring_buffer__free": (None, [_VOID]),
}


class UprobeOptions(Structure):
    """`struct bpf_uprobe_opts` of libbpf 1.0; later versions read as much as `bytes` says."""

    _fields_ = (
        ("bytes", c_size_t),
        ("semaphore", c_size_t),
        ("cookie", c_uint64),
        ("at_return", c_bool),
        ("function", c_char_p),
    )


@cache
def library() -> ctypes.CDLL:
    """The library. Raises `TracerError` where there is none."""
    try:
        found = ctypes.CDLL(_LIBRARY, use_errno=True)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise TracerError(
            f"{_LIBRARY} is not to be had ({error}); install libbpf 1.0 or later (Debian: apt-get install libbpf1)"
        ) from error
    found.libbpf_set_print(None)  # it would write to stderr; what matters is in the errors
    return found


def reason(code: int) -> str:
    """An errno in words, with what to do where that is known."""
    words = os.strerror(code)
    if code in (1, 13):  # EPERM, EACCES
        return f"{words}: {NEEDS}, and a kernel that is not locked down"
    if code == 38:  # ENOSYS
        return f"{words}: this kernel or its sandbox has no bpf()"
    return words


def check(result: int, what: str) -> int:
    """`result` of a call that returns a negative errno. Raises `TracerError`."""
    if result < 0:
        raise TracerError(f"{what}: {reason(-result)}")
    return result


def check_pointer(pointer: int | None, what: str) -> int:
    """`pointer` of a call that returns NULL and sets errno. Raises `TracerError`."""
    if not pointer:
        raise TracerError(f"{what}: {reason(ctypes.get_errno())}")
    return pointer
