from typing_extensions import Buffer

BEST_LEVEL: int
"""0 = portable C, 1 = AVX2+F16C, 2 = AVX-512; -1 as an argument means this one."""

def int4_encode(
    array: Buffer, scales: Buffer, packed: Buffer, rows: int, channels: int, group: int, half: bool, level: int, /
) -> bool: ...
def int4_decode(
    packed: Buffer, scales: Buffer, array: Buffer, rows: int, channels: int, group: int, half: bool, level: int, /
) -> None: ...
def fp32_to_fp16(source: Buffer, target: Buffer, level: int, /) -> None: ...
