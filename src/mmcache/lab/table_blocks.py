"""Table `blocks`: how much encoder work partial reuse saves, whole-input keys against blocks.

A whole-input key hits only where the entire crop, document or window was asked for before; with blocks, only the
tiles, pages or frames that nobody asked for before are computed. Both sides must produce the same features for the
same requests, and the table checks that they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from mmcache.cache import Cache
from mmcache.keys.region import tiles
from mmcache.lab import data, pages
from mmcache.lab.models import ImageEncoder
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.model.errors import IntegrityError
from mmcache.model.signature import Signature

Floats = npt.NDArray[np.float32]
Box = tuple[int, int, int, int]
Request = tuple[Image.Image, Box] | list[Image.Image]
"""A crop of a picture, or the pages or frames of a document or a window."""

TILE = 224
WINDOW, STRIDE = 16, 4
"""Frames of a window, and frames until the next one begins."""


@dataclass
class Encoder:
    """DINOv2 behind a counter. Equal pixels are encoded once for all arms; work is counted, not saved by that."""

    model: ImageEncoder = field(default_factory=ImageEncoder)
    inputs: int = 0
    _known: dict[bytes, Floats] = field(default_factory=dict)

    def batch(self, pictures: Sequence[Image.Image]) -> list[Floats]:
        """float32 [257, 384] of each."""
        self.inputs += len(pictures)
        names = [repr(picture.size).encode() + picture.tobytes() for picture in pictures]
        fresh = {name: picture for name, picture in zip(names, pictures, strict=True) if name not in self._known}
        self._known.update(zip(fresh, self.model.encode_batch(list(fresh.values())), strict=True))
        return [self._known[name] for name in names]

    def one(self, picture: Image.Image) -> Floats:
        """float32 [257, 384]."""
        return self.batch([picture])[0]


def blocks_of(request: Request) -> list[Image.Image]:
    """The model inputs that a request consists of."""
    if isinstance(request, list):
        return request
    picture, box = request
    regions = tiles(picture.width, picture.height, TILE, 0)
    return [region.render(picture) for region in regions if region.overlaps_box(box)]


def crops(random: np.random.Generator, count: int, pictures: Sequence[Image.Image]) -> Iterator[Request]:
    """Zoom and pan: windows of a quarter to half of each side, anywhere; one in five is asked for again."""
    asked: list[tuple[Image.Image, Box]] = []
    for _ in range(count):
        if asked and random.random() < 0.2:
            yield asked[int(random.integers(len(asked)))]
            continue
        picture = pictures[int(random.integers(len(pictures)))]
        width, height = (round(side * random.uniform(0.25, 0.5)) for side in picture.size)
        left, upper = int(random.integers(picture.width - width)), int(random.integers(picture.height - height))
        asked.append((picture, (left, upper, left + width, upper + height)))
        yield asked[-1]


def revisions(
    random: np.random.Generator, count: int, sources: Sequence[pages.Document], edit: Callable[..., pages.Document]
) -> Iterator[Request]:
    """Documents asked for again and again; every second request finds a new revision."""
    current = list(sources)
    for _ in range(count):
        place = int(random.integers(len(current)))
        if random.random() < 0.5:
            current[place] = edit(current[place], random)
        yield pages.pages(current[place])


def windows(frames: Sequence[Image.Image], stride: int) -> Iterator[Request]:
    """What a model that watches a stream is asked: the latest frames, again every `stride` frames."""
    for start in range(0, len(frames) - WINDOW + 1, stride):
        yield list(frames[start : start + WINDOW])


def slides(random: np.random.Generator, seconds: int, sources: Sequence[pages.Document]) -> list[Image.Image]:
    """A screen recording of a talk at one frame a second: each page stays for 5 to 20 s, some come back."""
    shown = [page for document in sources for page in pages.pages(document)]
    frames: list[Image.Image] = []
    while len(frames) < seconds:
        frames += [shown[int(random.integers(len(shown)))]] * int(random.integers(5, 21))
    return frames[:seconds]


def work(requests: Sequence[Request], encoder: Encoder) -> tuple[int, int, int]:
    """Model inputs asked for, computed with whole-input keys, and computed with blocks.

    Raises `IntegrityError` where the two sides' features differ.
    """
    signature = encoder.model.signature
    asked = sum(len(blocks_of(request)) for request in requests)
    with Cache(memory="2GiB") as whole, Cache(memory="2GiB") as parts:
        encode = parts.wrap(encoder.one, modality="image", signature=signature, batch=encoder.batch, guard=False)
        counts = [0, 0]
        for request in requests:
            before = encoder.inputs
            one = _whole(whole, request, encoder, signature)
            middle = encoder.inputs
            other = encode.batch(request) if isinstance(request, list) else _crop(encode, request)
            counts[0] += middle - before
            counts[1] += encoder.inputs - middle
            if not np.array_equal(np.stack(one), np.stack(other)):
                raise IntegrityError("whole-input keys and blocks gave different features for one request")
    return asked, counts[0], counts[1]


def _whole(cache: Cache, request: Request, encoder: Encoder, signature: Signature) -> Any:
    if isinstance(request, list):
        key = cache.key(request, modality="video", signature=signature)
        return cache.get_or_compute(key, lambda: encoder.batch(request))
    picture, box = request
    regions = [r for r in tiles(picture.width, picture.height, TILE, 0) if r.overlaps_box(box)]
    lefts, uppers, rights, lowers = zip(*(region.box for region in regions), strict=True)
    crop = picture.crop((min(lefts), min(uppers), max(rights), max(lowers)))
    key = cache.key(crop, modality="image", signature=signature)
    return cache.get_or_compute(key, lambda: encoder.batch([region.render(picture) for region in regions]))


def _crop(encode: Any, request: tuple[Image.Image, Box]) -> Any:
    picture, box = request
    return encode.tiles(picture, tile=TILE, box=box)


class BlocksTable(Table):
    """Share of the encoder's work saved."""

    name: ClassVar[str] = "blocks"
    title: ClassVar[str] = "Partial reuse: encoder work saved by whole-input keys and by blocks"

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Real encoder, real pictures and frames; requests drawn from `seeds`. Raises `AssetError`."""
        encoder = Encoder()
        names = list(self._workloads(0, quick))
        found: dict[str, list[tuple[int, int, int]]] = {name: [] for name in names}
        for number, seed in enumerate(seeds):
            for place, (name, requests) in enumerate(self._workloads(seed, quick).items()):
                progress(name, number * len(names) + place, len(seeds) * len(names))
                found[name].append(work(list(requests), encoder))
        progress("done", len(seeds) * len(names), len(seeds) * len(names))
        rows = [row for name, counts in found.items() for row in _rows(name, counts)]
        return Result(
            self.name,
            quick,
            tuple(seeds),
            (
                "DINOv2 ViT-S/14 on every distinct picture; work is counted in model inputs",
                "frames of Big Buck Bunny (1280 × 720) and of a still camera (176 × 144); chapters of Python's manual",
                "the features of both sides are compared bit by bit, request by request",
            ),
            (
                "which crops, revisions and windows are asked for (fixed seeds)",
                "pages are drawn from the text; the talk shows such pages",
                "equal pixels are encoded once for both sides, and counted each time",
            ),
            tuple(rows),
        )

    def _workloads(self, seed: int, quick: bool) -> dict[str, Iterator[Request]]:
        random = np.random.default_rng(seed)
        pictures = list(data.frames("bunny", 0, 130, 44 if quick else 22))
        sources = pages.documents(3 if quick else 8)
        camera = list(data.frames("carphone", 0, 32 if quick else 120))
        asked = 20 if quick else 80
        return {
            "crops": crops(random, asked, pictures),
            "pages-corrected": revisions(random, asked, sources, pages.corrected),
            "pages-extended": revisions(random, asked, sources, pages.extended),
            "talk": windows(slides(random, 60 if quick else 300, sources), STRIDE),
            "camera-overlapping": windows(camera, STRIDE),
            "camera-apart": windows(camera, WINDOW),
        }


_WORDS = {
    "crops": "overlapping crops of 720p frames, tiles of 224",
    "pages-corrected": "documents, one line reworded between requests",
    "pages-extended": "documents, one line inserted: later pages reflow",
    "talk": "screen recording of a talk, windows of 16 frames every 4",
    "camera-overlapping": "still camera, windows of 16 frames every 4",
    "camera-apart": "still camera, windows that do not overlap: sensor noise leaves no two frames equal",
}


def _rows(name: str, counts: Sequence[tuple[int, int, int]]) -> list[Row]:
    whole = [100 * (1 - alone / asked) for asked, alone, _ in counts]
    parts = [100 * (1 - shared / asked) for asked, _, shared in counts]
    ratio = [alone / shared for _, alone, shared in counts]
    return [
        Row.of(f"{name}/whole", f"work saved by whole-input keys: {_WORDS[name]}", "%", "higher", whole),
        Row.of(f"{name}/blocks", f"work saved by blocks: {_WORDS[name]}", "%", "higher", parts),
        Row.of(f"{name}/ratio", "model inputs computed, whole ÷ blocks", "x", "higher", ratio, target=1.0),
    ]
