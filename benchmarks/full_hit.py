"""A full hit: from the bytes of a 4K JPEG that was seen before to its features, the key included."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from blake3 import blake3
from PIL import Image, ImageFilter

from mmcache import Cache
from mmcache.lab.bench import main
from mmcache.lab.measure import interleave, memcpy
from mmcache.lab.table import Progress, Result, Row, Table

FEATURES = (729, 1152)
"""Patch tokens × channels of a 384-pixel SigLIP tower, float16: 1.7 MB."""


def photo(seed: int) -> bytes:
    """A 3840×2160 JPEG whose size is that of a photograph: blurred noise at several scales, quality 90."""
    random = np.random.default_rng(seed)
    layers = np.zeros((2160, 3840, 3), np.float32)
    for scale in (4, 16, 64):
        coarse = random.integers(0, 256, (2160 // scale, 3840 // scale, 3), np.uint8)
        layers += np.asarray(Image.fromarray(coarse).resize((3840, 2160), Image.Resampling.BICUBIC), np.float32) / 3
    picture = Image.fromarray(layers.clip(0, 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(1))
    page = io.BytesIO()
    picture.save(page, "JPEG", quality=90)
    return page.getvalue()


def encode(picture: Image.Image) -> npt.NDArray[np.float16]:
    """Stands for a vision tower; runs once per picture here."""
    rows = np.asarray(picture.resize((384, 384)), np.float32).reshape(384, -1) / 2550
    return np.resize(rows @ rows.T, FEATURES).astype(np.float16)


def floor(jpeg: bytes, copy: Callable[[], object]) -> None:
    """What no cache that copies its value and trusts no file name can beat."""
    blake3(jpeg).digest()
    copy()


def decode(jpeg: bytes) -> None:
    """What a cache that keys pictures on their pixels, without a memo, pays before it can look."""
    Image.open(io.BytesIO(jpeg)).load()


class FullHit(Table):
    """Ours ÷ (BLAKE3 of the same bytes + one copy of the value)."""

    name = "bench-full_hit"
    title = "What does a repeated 4K JPEG cost, from its bytes to its features?"

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        rounds = 9 if quick else 31
        times: dict[str, list[float]] = {}
        ratios: list[float] = []
        with tempfile.TemporaryDirectory() as folder:
            for seed in seeds:
                jpeg = photo(seed)
                path = Path(folder) / f"{seed}.jpg"
                path.write_bytes(jpeg)
                with Cache(Path(folder) / "cache", memory="64MiB", disk="256MiB") as cache:
                    cached = cache.wrap(encode, modality="image", signature="tower-1", guard=False)
                    value = cached(jpeg)
                    calls: dict[str, Callable[[], object]] = {
                        "ours": partial(cached, jpeg),
                        "ours, from a path": partial(cached, path),
                        "BLAKE3 + memcpy": partial(floor, jpeg, memcpy(value.nbytes)),
                        "decode alone": partial(decode, jpeg),
                    }
                    took = interleave(calls, rounds=rounds, progress=progress)
                for name, timing in took.items():
                    times.setdefault(name, []).extend(timing.scaled(1e6))
                ratios += took["ours"].over(took["BLAKE3 + memcpy"])
        rows = [Row.of(f"time/{name}", f"{name}, one picture", "µs", "lower", us) for name, us in times.items()]
        rows.append(Row.of("ratio", "ours ÷ (BLAKE3 + memcpy)", "x", "lower", ratios, target=1.2))
        real = (f"JPEG of {len(jpeg) / 1e6:.1f} MB, features of {value.nbytes / 1e6:.1f} MB, the library's own calls",)
        simulated = ("the picture is drawn noise; the tower is a matrix product, which a hit does not run",)
        return Result(self.name, quick, tuple(seeds), real, simulated, tuple(rows))


if __name__ == "__main__":
    sys.exit(main(FullHit()))
