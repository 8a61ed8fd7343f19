"""Where a symbol is in a library is read from the file itself; what is damaged is refused and never crashes."""

from __future__ import annotations

import importlib.util
import platform
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.errors import TracerError
from mmcache.tracer.elf import Elf
from mmcache.tracer.process import PROBE, SEMAPHORE


def _library() -> bytes:
    found = importlib.util.find_spec("mmcache.tiers._hit_index")
    if found is None or found.origin is None or sys.platform != "linux":
        pytest.skip("the C extension was not built here, or not for Linux")
    return Path(found.origin).read_bytes()


def test_the_probe_is_where_the_file_says() -> None:
    raw = _library()
    elf = Elf.parse(raw)
    assert elf.machine == platform.machine()
    if elf.machine == "x86_64":
        place = elf.offsets[PROBE]
        assert raw[place : place + 6].hex() == "0f1f440000c3"  # one nop of 5 bytes, which the kernel turns into a call
    place = elf.offsets[SEMAPHORE]
    assert raw[place : place + 2] == b"\0\0"
    assert "PyDict_GetItemWithError" not in elf.offsets  # it is another library's


@given(st.data())
def test_damage_is_refused_or_changes_offsets_only(data: st.DataObject) -> None:
    raw = bytearray(_library())
    header = data.draw(st.sampled_from([64, len(raw)]))
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(6, header - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.sampled_from([len(raw), len(raw) // 2, 200, 64, 10]))])
    with suppress(TracerError):
        Elf.parse(cut)


@pytest.mark.parametrize("raw", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(100), b"\x7fELF\x02\x02" + bytes(100)])
def test_what_is_no_library_is_refused(raw: bytes) -> None:
    with pytest.raises(TracerError, match="64-bit little-endian ELF"):
        Elf.parse(raw)
