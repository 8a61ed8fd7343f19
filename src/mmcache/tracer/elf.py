"""Where a symbol is in an ELF file: what the kernel wants to know to look in there. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from mmcache.model.errors import TracerError

_LOAD, _DYNAMIC_SYMBOLS = 1, 11
_MACHINES = {62: "x86_64", 183: "aarch64"}


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    bytes: int


class _Section(NamedTuple):
    kind: int
    offset: int
    bytes: int
    link: int
    entry_bytes: int


@dataclass(frozen=True)
class Elf:
    """The dynamic symbols of one shared library."""

    machine: str
    offsets: dict[str, int]
    """Symbol → its place in the file, in bytes from its start."""

    @classmethod
    def parse(cls, raw: bytes) -> Elf:
        """Raises `TracerError` for what is no 64-bit little-endian ELF library, or is cut short."""
        if raw[:6] != b"\x7fELF\x02\x01":
            raise TracerError("the mapped library is no 64-bit little-endian ELF file")
        try:
            return cls._parse(raw)
        except (struct.error, IndexError, ValueError, OverflowError) as error:
            raise TracerError(f"the mapped library is a damaged ELF file: {error}") from error

    @classmethod
    def _parse(cls, raw: bytes) -> Elf:
        (machine,) = struct.unpack_from("<H", raw, 18)
        segments_at, sections_at = struct.unpack_from("<QQ", raw, 32)
        segment_bytes, segment_count, section_bytes, section_count = struct.unpack_from("<HHHH", raw, 54)
        segments = []
        for n in range(segment_count):
            kind, _, offset, address, _, file_bytes = struct.unpack_from(
                "<IIQQQQ", raw, segments_at + n * segment_bytes
            )
            segments.append(_Segment(kind, offset, address, file_bytes))
        sections = []
        for n in range(section_count):
            _, kind, _, _, offset, size, link, _, _, entry = struct.unpack_from(
                "<IIQQQQIIQQ", raw, sections_at + n * section_bytes
            )
            sections.append(_Section(kind, offset, size, link, entry))
        offsets = {}
        for table in sections:
            if table.kind != _DYNAMIC_SYMBOLS:
                continue
            names = sections[table.link].offset
            for at in range(table.offset, table.offset + table.bytes, max(24, table.entry_bytes)):
                name_at, _, _, section, address, _ = struct.unpack_from("<IBBHQQ", raw, at)
                place = _in_file(segments, address)
                if section and place is not None:  # 0 = it is another library's
                    start = names + name_at
                    offsets[raw[start : raw.index(b"\0", start)].decode()] = place
        return cls(_MACHINES.get(machine, str(machine)), offsets)


def _in_file(segments: list[_Segment], address: int) -> int | None:
    for segment in segments:
        if segment.kind == _LOAD and segment.address <= address < segment.address + segment.bytes:
            return address - segment.address + segment.offset
    return None
