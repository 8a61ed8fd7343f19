"""Table `keys`: pairs that must share a digest, pairs that must not, and the time against bare BLAKE3 of the bytes.

A second witness decides what is equal: pairs are made by re-encoding (equal) or by changing pixels, geometry, dtype,
words or realm (unequal), never by asking the digest.
"""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from blake3 import blake3
from PIL import Image

from mmcache.keys.content import identify
from mmcache.keys.memo import LocalMemo
from mmcache.keys.realm import RealmKeys
from mmcache.lab.data import pictures, texts
from mmcache.lab.data.speech import RATE, speech
from mmcache.lab.measure import Timing, interleave
from mmcache.lab.table import Progress, Result, Row, Table

_REALMS = RealmKeys(bytes(32))
_SALT = _REALMS.salt("lab", "keys")
_LARGEST_HIT_RATIO = 1.2
_LOSSLESS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("PNG", {"compress_level": 0}),
    ("PNG", {"compress_level": 9}),
    ("BMP", {}),
    ("TIFF", {"compression": "tiff_lzw"}),
    ("WEBP", {"lossless": True, "method": 0}),
)

Pair = tuple[bytes, bytes]


class KeysTable(Table):
    """Equal pairs, unequal pairs, and speed."""

    name: ClassVar[str] = "keys"
    title: ClassVar[str] = "Keys: equal content shares a digest, other content never, at the speed of BLAKE3"
    default_seeds: ClassVar[tuple[int, ...]] = (0,)

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Real pictures, speech and texts. `seeds` choose pixels to change. Raises `AssetError`."""
        images = _images(quick)
        equal, unequal = 0, 0
        missed, wrong = 0, 0
        for done, image in enumerate(images):
            for one, two in _equal(image):
                equal, missed = equal + 1, missed + (one != two)
            for seed in seeds:
                for one, two in _unequal(image, np.random.default_rng((seed, done))):
                    unequal, wrong = unequal + 1, wrong + (one == two)
            progress("pictures", done + 1, len(images))
        for one, two in _other_equal():
            equal, missed = equal + 1, missed + (one != two)
        digests = [_digest(image) for image in images] + [_digest(text, "text") for text in texts.paragraphs()]
        different = len({image.tobytes() + str(image.size).encode() for image in images}) + len(texts.paragraphs())
        unequal += different * (different - 1) // 2
        shared = different - len(set(digests))
        rows = [
            Row.of("equal/pairs", "pairs that must match, tried", "pairs", "higher", equal),
            Row.of("equal/missed", "of them, with two digests", "pairs", "lower", missed, target=0),
            Row.of("unequal/pairs", "pairs that must not match, tried", "pairs", "higher", unequal),
            Row.of("unequal/shared", "of them, with one digest", "pairs", "lower", wrong + max(0, shared), target=0),
            *_speed(quick),
        ]
        return Result(
            self.name,
            quick,
            tuple(seeds),
            (
                f"{len(images)} pictures: easy-VQA drawings, a photograph, video frames; encoded by Pillow",
                "speech clips as WAV and FLAC; paragraphs of Python's manual",
                "bare BLAKE3 (keyed, one thread) over the same bytes in the same rounds",
            ),
            ("the 4K JPEG is the photograph, enlarged to 3840 × 2160",),
            tuple(rows),
        )


def _digest(source: Any, modality: str = "image", salt: bytes = _SALT) -> bytes:
    return identify(source, modality, salt=salt).digest


def _images(quick: bool) -> list[Image.Image]:
    found = [Image.open(path).convert("RGB") for path in pictures.shapes()[: 50 if quick else 400]]
    found.append(Image.open(pictures.portrait()).convert("RGB"))
    found += pictures.frames("carphone", step=10 if quick else 2)
    distinct = {(image.size, image.tobytes()): image for image in found}
    return list(distinct.values())


def _encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def _equal(image: Image.Image) -> Iterator[Pair]:
    first = _digest(image)
    for format, options in _LOSSLESS:
        yield first, _digest(_encoded(image, format, **options))
    exif = Image.Exif()
    exif[0x0112] = 6  # "turn me clockwise": stored lying on its side
    yield first, _digest(_encoded(image.transpose(Image.Transpose.ROTATE_90), "PNG", exif=exif))
    array = np.asarray(image)
    yield _digest(array), _digest(np.asfortranarray(array))


def _unequal(image: Image.Image, random: np.random.Generator) -> Iterator[Pair]:
    first, array = _digest(image), np.asarray(image)
    changed = array.copy()
    changed[random.integers(array.shape[0]), random.integers(array.shape[1]), random.integers(3)] ^= 1
    yield first, _digest(Image.fromarray(changed))
    height, width = array.shape[:2]
    for other in (width * 2, width // 2):
        if other and width * height % other == 0:
            yield first, _digest(Image.frombytes("RGB", (other, width * height // other), image.tobytes()))
    yield first, _digest(image.convert("RGBA"))
    yield first, _digest(image, salt=_REALMS.salt("another tenant", "keys"))
    yield first, _digest(array)
    yield _digest(array), _digest(array.view(np.int8))
    yield _digest(array), _digest(array.reshape(-1))
    yield _digest(array), _digest(array, "tensor")


def _other_equal() -> Iterator[Pair]:
    import soundfile

    for clip in speech():
        whole = np.round(clip.samples * 32767).astype(np.int16)
        digests = []
        for format in ("WAV", "FLAC"):
            buffer = io.BytesIO()
            soundfile.write(buffer, whole, RATE, format=format, subtype="PCM_16")
            digests.append(_digest(buffer.getvalue(), "audio"))
        yield digests[0], digests[1]
        yield digests[0], _digest((whole, RATE), "audio")
    for word in ("café", "Ångström", "naïve", "한글"):
        yield _digest(word, "text"), _digest(unicodedata.normalize("NFD", word), "text")


def _speed(quick: bool) -> list[Row]:
    photo = Image.open(pictures.portrait()).convert("RGB").resize((3840, 2160), Image.Resampling.BICUBIC)
    raw, array, words = _encoded(photo, "JPEG", quality=92), np.asarray(photo), "words of a prompt " * 200
    memo = LocalMemo()
    pixels, text = array.tobytes(), words.encode()
    calls: dict[str, tuple[int, Callable[[], object], Callable[[], object]]] = {
        "jpeg-seen": (len(raw), lambda: identify(raw, "image", salt=_SALT, memo=memo).digest, _bare(raw)),
        "jpeg-new": (len(raw), lambda: _digest(raw), _bare(raw)),
        "pil": (len(pixels), lambda: _digest(photo), _bare(pixels)),
        "array": (len(pixels), lambda: _digest(array), _bare(pixels)),
        "text": (len(text), lambda: _digest(words, "text"), _bare(text)),
    }
    rows = []
    for name, (size, ours, bare) in calls.items():  # each pair by itself: what disturbs one disturbs the other
        times = interleave({"ours": ours, "bare": bare}, rounds=21 if quick else 101, least_seconds=0.002)
        rows += _rows(name, size, times["ours"], times["bare"])
    return rows


def _rows(name: str, size: int, ours: Timing, bare: Timing) -> list[Row]:
    what = {
        "jpeg-seen": "4K JPEG seen before",
        "jpeg-new": "4K JPEG, decoded",
        "pil": "4K PIL picture",
        "array": "4K array",
        "text": "3.6 kB text",
    }[name]
    target = _LARGEST_HIT_RATIO if name == "jpeg-seen" else None
    return [
        Row.of(f"speed/{name}", f"{what} → digest", "ns/MB", "lower", ours.scaled(1e15 / size)),
        Row.of(f"speed/{name}/blake3", f"{what}: bare BLAKE3", "ns/MB", "lower", bare.scaled(1e15 / size)),
        Row.of(f"ratio/{name}", f"{what}: ours ÷ BLAKE3", "x", "lower", ours.over(bare), target=target),
    ]


def _bare(data: bytes) -> Callable[[], object]:
    return lambda: blake3(data, key=_SALT).digest()
