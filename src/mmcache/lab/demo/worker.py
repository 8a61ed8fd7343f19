"""One pass in a process of its own: `python -m mmcache.lab.demo.worker MODE MANIFEST OUT [ROOT]`.

MODE is `plain` (no cache), `cached` (a cache in ROOT, new or left by an earlier process), `lossy` (int4) or `visits`
(with a prefetcher). Lines on stdout say how many requests are done; the result goes to OUT.
"""

from __future__ import annotations

import sys
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
from blake3 import blake3

from mmcache.lab.demo.manifest import TILE, Ask, Manifest, Modality
from mmcache.lab.demo.records import Lossy, Pass, Record, save
from mmcache.lab.models import ImageEncoder, SpeechEncoder, TextEncoder
from mmcache.model.block import ArraySpec
from mmcache.model.errors import SettingsError
from mmcache.model.signature import Signature

if TYPE_CHECKING:
    from mmcache.cache import Cache

Floats = npt.NDArray[np.float32]
Answer = Callable[[Ask], Floats]


class Model(Protocol):
    """What the three encoders have in common."""

    @property
    def signature(self) -> Signature: ...
    def load(self) -> None: ...
    def encode_batch(self, inputs: Sequence[Any], /) -> list[Floats]: ...


@dataclass
class Meter:
    """A model with a clock: how often and how long it really ran."""

    model: Model
    inputs: int = 0
    seconds: float = 0.0
    load_seconds: float = 0.0
    _loaded: bool = field(default=False, repr=False)

    def batch(self, inputs: Sequence[Any]) -> list[Floats]:
        """Run the model, loading it first where this is its first run."""
        if not self._loaded:
            start = time.perf_counter()
            self.model.load()
            self.load_seconds, self._loaded = time.perf_counter() - start, True
        start = time.perf_counter()
        outputs = self.model.encode_batch(inputs)
        self.seconds += time.perf_counter() - start
        self.inputs += len(inputs)
        return outputs

    def one(self, source: Any) -> Floats:
        """Run the model on one input."""
        return self.batch([source])[0]


def meters() -> dict[Modality, Meter]:
    """The real encoders, not loaded yet."""
    return {"image": Meter(ImageEncoder()), "text": Meter(TextEncoder()), "audio": Meter(SpeechEncoder())}


def plain(media: Path, models: dict[Modality, Meter]) -> dict[Modality, Answer]:
    """What an application without a cache does: decode, run the model. Texts are NFC, as the cache gives them."""

    def image(ask: Ask) -> Floats:
        from PIL import Image, ImageOps

        with Image.open(media / ask.source) as file:
            picture = ImageOps.exif_transpose(file)
        if ask.box is None:
            return models["image"].one(picture)
        return np.stack(models["image"].batch(crop_tiles(picture, ask.box)))

    def audio(ask: Ask) -> Floats:
        import soundfile

        samples, _ = soundfile.read(media / ask.source, dtype="float32")
        return models["audio"].one(samples)

    def text(ask: Ask) -> Floats:
        return models["text"].one(unicodedata.normalize("NFC", ask.source))

    return {"image": image, "text": text, "audio": audio}


def crop_tiles(picture: Any, box: tuple[int, int, int, int]) -> list[Any]:
    """The tiles of `picture` that `box` touches, as pictures, row by row."""
    from mmcache.keys.region import tiles

    regions = tiles(picture.width, picture.height, TILE, 0)
    return [region.render(picture) for region in regions if region.overlaps_box(box)]


def cached(cache: Cache, media: Path, models: dict[Modality, Meter]) -> dict[Modality, Answer]:
    """The same behind a cache: three wrapped functions."""
    image, text, audio = (
        cache.wrap(meter.one, modality=modality, signature=meter.model.signature, batch=meter.batch)
        for modality, meter in models.items()
    )

    def picture(ask: Ask) -> Any:
        path = media / ask.source
        return image(path) if ask.box is None else image.tiles(path, tile=TILE, box=ask.box)

    return {
        "image": picture,
        "text": lambda ask: text(ask.source),
        "audio": lambda ask: audio(media / ask.source),
    }


def fingerprint(output: Floats) -> str:
    """dtype, shape and bytes in 16 bytes (hex)."""
    head = f"{output.dtype.str}{output.shape}".encode()
    return blake3(head + np.ascontiguousarray(output).tobytes()).hexdigest(length=16)


def serve(asks: Sequence[Ask], answers: dict[Modality, Answer], models: dict[Modality, Meter]) -> list[Record]:
    """Answer every request in order; only the answering is timed."""
    records, told = list[Record](), time.perf_counter()
    for done, ask in enumerate(asks, 1):
        meter = models[ask.modality]
        before, start = meter.inputs, time.perf_counter()
        output = answers[ask.modality](ask)
        seconds = time.perf_counter() - start
        blocks = len(output) if ask.box is not None else 1
        records.append(Record(seconds, blocks, meter.inputs - before, output.nbytes, fingerprint(output)))
        if time.perf_counter() - told > 0.1 or done == len(asks):
            told = time.perf_counter()
            print(done, flush=True)
    return records


def run_plain(manifest: Manifest) -> Pass:
    """No cache."""
    models = meters()
    return _pass(serve(manifest.asks, plain(Path(manifest.media), models), models), models)


def run_cached(manifest: Manifest, root: Path) -> Pass:
    """With the cache in `root`."""
    models = meters()
    start = time.perf_counter()
    from mmcache.cache import Cache

    with Cache(root, memory="512MiB", disk="4GiB") as cache:
        answers = cached(cache, Path(manifest.media), models)
        opening = time.perf_counter() - start
        served = serve(manifest.asks, answers, models)
        stats = cache.stats()
        start = time.perf_counter()
    return msgspec.structs.replace(
        _pass(served, models),
        open_seconds=opening,
        close_seconds=time.perf_counter() - start,
        stored_bytes=size_of(root),
        hits=stats.hits,
        misses=stats.misses,
        miss_reasons=stats.miss_reasons,
        by_modality=stats.by_modality,
    )


def _pass(records: list[Record], models: dict[Modality, Meter]) -> Pass:
    return Pass(
        records=tuple(records),
        load_seconds=sum(meter.load_seconds for meter in models.values()),
        encoder_seconds=sum(meter.seconds for meter in models.values()),
    )


def size_of(root: Path) -> int:
    """Bytes that the files under `root` take on disk (sparse files count what they use)."""
    return sum(path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file())


def run_lossy(manifest: Manifest, root: Path) -> Lossy:
    """Store every picture's tokens in int4, open the cache again, and compare what it gives with the model's output."""
    from mmcache.cache import Cache
    from mmcache.codecs.int4 import INT4

    meter, media = Meter(ImageEncoder()), Path(manifest.media)
    exact = dict[str, Floats]()

    def open_cache() -> Cache:
        return Cache(root, memory="64MiB", disk="1GiB", codec="int4")

    def encode(picture: Any) -> Floats:
        exact["latest"] = meter.one(picture)
        return exact["latest"]

    with open_cache() as cache:
        wrapped = cache.wrap(encode, modality="image", signature=meter.model.signature)
        for done, name in enumerate(manifest.lossy, 1):
            wrapped(media / name)
            if "latest" in exact:  # else its pixels are those of an earlier picture
                exact[name] = exact.pop("latest")
            print(done, flush=True)
    computed = meter.inputs
    codec = INT4()
    errors, shares, cosines = list[float](), list[float](), list[float]()
    with open_cache() as cache:
        wrapped = cache.wrap(encode, modality="image", signature=meter.model.signature)
        for name, truth in exact.items():
            tokens = wrapped(media / name)
            error = np.abs(tokens - truth)
            errors.append(float(error.max()))
            shares.append(float((error / codec.error_bound(truth, ArraySpec.of(truth))).max()))
            norms = np.linalg.norm(tokens, axis=1) * np.linalg.norm(truth, axis=1)
            cosines.append(float(((tokens * truth).sum(axis=1) / norms).mean()))
        stored = sum(tier.bytes for name, tier in cache.stats().tiers.items() if name != "memory")
    return Lossy(
        pictures=len(exact),
        exact_bytes=sum(truth.nbytes for truth in exact.values()),
        stored_bytes=stored,
        largest_error=max(errors),
        largest_share=max(shares),
        mean_cosine=float(np.mean(cosines)),
        computed_again=meter.inputs - computed,
    )


def main(arguments: Sequence[str]) -> int:
    """The command line; see the module's docstring."""
    mode, manifest, out, *root = arguments
    asked = Manifest.read(Path(manifest))
    if mode == "plain":
        save(run_plain(asked), Path(out))
    elif mode == "cached":
        save(run_cached(asked, Path(root[0])), Path(out))
    elif mode == "lossy":
        save(run_lossy(asked, Path(root[0])), Path(out))
    elif mode == "visits" and asked.walks is not None:
        from mmcache.lab.demo.foresight import run_visits

        save(run_visits(asked.walks, Path(asked.media)), Path(out))
    else:
        raise SettingsError(f"no pass is called {mode!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
