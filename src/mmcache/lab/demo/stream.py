"""Draws the request stream and lays its files. Items are real; their popularity and order are synthetic.

Popularity is Zipf over a shuffled pool, as measured for web objects (Breslau et al., INFOCOM 1999) with exponent 0.9.
An item's first request is `new`; later ones are, by chance, the same file again, a lossless re-encoding of it (other
bytes, equal pixels or samples: must hit), a resized copy (other pixels: an honest miss), or a crop.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from PIL import Image

from mmcache.lab import data
from mmcache.lab.demo.manifest import Ask, Box, Kind, Manifest, Modality, Page, Walks
from mmcache.lab.table import Progress, silent

ZIPF_EXPONENT = 0.9


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    shapes: int
    frames: int
    texts: int
    clips: int
    images_asked: int
    texts_asked: int
    clips_asked: int
    lossy: int
    pages: int
    """Of each tour."""
    a_page: int
    """Pictures."""
    reading_seconds: float


FULL = Size(shapes=50, frames=44, texts=140, clips=17, images_asked=370, texts_asked=450, clips_asked=120, lossy=24,
            pages=9, a_page=2, reading_seconds=1.0)  # fmt: skip
QUICK = Size(shapes=8, frames=14, texts=40, clips=8, images_asked=90, texts_asked=120, clips_asked=30, lossy=6,
             pages=5, a_page=1, reading_seconds=0.5)  # fmt: skip

OWN_TEXTS = (
    "Où se trouve la médiathèque près de l'hôtel de ville ?",
    "¿Cuánto cuesta el envío a la peninsula en señal de devolución?",
    "Zeige mir Bilder von Vögeln über dem Süßwassersee.",
    "Qual é a previsão do tempo para amanhã em São Paulo?",
    "Kur atrodas tuvākā bibliotēka, un vai tā šodien ir atvērta?",
    "Tìm cho tôi những bức ảnh có một hình tròn màu đỏ.",
    "Který obrázek ukazuje žlutého koně na louce?",
    "Jaké są godziny otwarcia muzeum w święto Trzech Króli?",
    "Hvor ligger den nærmeste åpne kafé ved brygga?",
    "사진 속의 파란 삼각형은 어디에 있습니까?",
    "写真の中の赤い円はどこですか。がぎぐげごを含みます。",
    "Ποιο σχήμα βρίσκεται στη φωτογραφία;",
)
"""Written for the demo: texts whose Unicode NFC and NFD forms differ."""


class _Draw:
    """One modality's items: which is asked next, and as what."""

    def __init__(self, random: np.random.Generator, items: int) -> None:
        weights = np.arange(1, items + 1, dtype=np.float64) ** -ZIPF_EXPONENT
        self._shares = random.permutation(weights / weights.sum())
        self._random = random
        self.seen: set[int] = set()

    def items(self, count: int) -> list[int]:
        return [int(item) for item in self._random.choice(len(self._shares), count, p=self._shares)]

    def first(self, item: int) -> bool:
        fresh = item not in self.seen
        self.seen.add(item)
        return fresh


class _Media:
    """Writes each file once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def picture(self, name: str, picture: Image.Image, form: str) -> str:
        path = self._folder / f"{name}.{form}"
        if not path.exists():
            if form == "webp":
                picture.save(path, lossless=True, quality=0, method=0)
            elif form == "png":
                picture.save(path, compress_level=1)
            else:
                picture.save(path)
        return path.name

    def sound(self, name: str, samples: data.Clip, form: str) -> str:
        path = self._folder / f"{name}.{form}"
        if not path.exists():
            soundfile.write(path, samples.samples, data.RATE, subtype="PCM_16")
        return path.name

    def copy(self, original: Path) -> str:
        path = self._folder / original.name
        if not path.exists():
            path.write_bytes(original.read_bytes())
        return path.name


def _pictures(size: Size, random: np.random.Generator) -> list[tuple[str, Path | Image.Image]]:
    """Name and content: easy-VQA's files, frames of two clips, one photograph."""
    files = data.shapes()
    chosen = [files[int(number)] for number in random.choice(len(files), size.shapes, replace=False)]
    pool: list[tuple[str, Path | Image.Image]] = [(f"shape-{path.stem}", path) for path in chosen]
    large = size.frames * 3 // 4
    for clip, count in (("bunny", large), ("bikes", size.frames - large)):
        step = 130 // count
        pool += [
            (f"{clip}-{place * step}", frame) for place, frame in enumerate(data.frames(clip, 0, count * step, step))
        ]
    return [*pool, ("portrait", data.portrait())]


def _crop(picture: Image.Image, random: np.random.Generator) -> Box:
    """A window of 3/8 of each side, on one of 4 × 4 places: windows overlap."""
    width, height = picture.width * 3 // 8, picture.height * 3 // 8
    left, upper = (int(random.integers(4)) * side * 5 // 24 for side in picture.size)
    return left, upper, left + width, upper + height


def _images(size: Size, random: np.random.Generator, media: _Media) -> list[Ask]:
    pool = _pictures(size, random)
    draw, asks = _Draw(random, len(pool)), list[Ask]()
    shrunk = set[int]()
    for item in draw.items(size.images_asked):
        name, original = pool[item]
        picture: Image.Image = Image.open(original) if isinstance(original, Path) else original
        source = media.copy(original) if isinstance(original, Path) else media.picture(name, picture, "png")
        if draw.first(item):
            asks.append(Ask("image", "new", source))
            continue
        chance, large = random.random(), min(picture.size) > 500
        if large and chance < 0.3:
            asks.append(Ask("image", "crop", source, _crop(picture, random)))
        elif chance < 0.45:
            form = ("bmp", "webp")[int(random.integers(2))]
            asks.append(Ask("image", "re-encoded", media.picture(name, picture, form)))
        elif chance < 0.55:
            smaller = picture.resize((picture.width * 3 // 4, picture.height * 3 // 4), Image.Resampling.LANCZOS)
            kind: Kind = "repeat" if item in shrunk else "resized"
            shrunk.add(item)
            asks.append(Ask("image", kind, media.picture(f"{name}-small", smaller, "png")))
        else:
            asks.append(Ask("image", "repeat", source))
    return asks


def _texts(size: Size, random: np.random.Generator) -> list[Ask]:
    distinct = list(dict.fromkeys(question for question, _ in data.questions()))
    half = (size.texts - len(OWN_TEXTS)) // 2
    pool = [*OWN_TEXTS, *random.permutation(distinct)[:half], *random.permutation(data.paragraphs(most=320))[:half]]
    draw, asks = _Draw(random, len(pool)), []
    for item in draw.items(size.texts_asked):
        text = str(pool[item])
        kind: Kind = "new" if draw.first(item) else "repeat"
        other = unicodedata.normalize("NFD", text)
        if kind == "repeat" and other != text and random.random() < 0.5:
            asks.append(Ask("text", "respelled", other))
        else:
            asks.append(Ask("text", kind, text))
    return asks


def _clips(size: Size, random: np.random.Generator, media: _Media) -> list[Ask]:
    pool = data.speech()[: size.clips]
    draw, asks = _Draw(random, len(pool)), []
    for item in draw.items(size.clips_asked):
        kind: Kind = "new" if draw.first(item) else "repeat"
        if kind == "repeat" and random.random() < 0.2:
            asks.append(Ask("audio", "re-encoded", media.sound(f"clip-{item}", pool[item], "flac")))
        else:
            asks.append(Ask("audio", kind, media.sound(f"clip-{item}", pool[item], "wav")))
    return asks


VISITORS = 4
"""Of each tour, before the newcomer."""
SKIPPED = 0.15
"""How likely a visitor leaves a page out."""
STEP = 7
"""Frames from one picture of a tour to the next."""


def _walks(size: Size, random: np.random.Generator, media: _Media) -> Walks:
    """Three tours: through an animation, along a street, past drawn shapes. Four visitors of each, tour by tour; then
    somebody new walks the first one."""
    count, files = size.pages * size.a_page, data.shapes()
    tours = [
        [
            media.picture(f"{clip}-page-{place}", frame, "png")
            for place, frame in enumerate(data.frames(clip, 0, count * STEP, STEP))
        ]
        for clip in ("bunny", "bikes")
    ]
    tours.append([media.copy(files[int(number)]) for number in random.choice(len(files), count, replace=False)])
    pages = [[tuple(tour[place : place + size.a_page]) for place in range(0, count, size.a_page)] for tour in tours]

    def walk(tour: list[Page]) -> tuple[Page, ...]:
        return tuple(page for place, page in enumerate(tour) if not place or random.random() >= SKIPPED)

    earlier = tuple(walk(tour) for tour in pages for _ in range(VISITORS))
    return Walks(earlier, walk(pages[0]), count, size.reading_seconds)


def lay(folder: Path, *, seed: int = 0, quick: bool = False, progress: Progress = silent) -> Manifest:
    """Draw the stream of `seed` and write its files into `folder`. Raises `AssetError` where data is missing."""
    size = QUICK if quick else FULL
    random = np.random.default_rng(seed)
    media = _Media(folder)
    steps: list[tuple[Modality, list[Ask]]] = []
    progress("lay pictures", 0, 3)
    steps.append(("image", _images(size, random, media)))
    progress("lay texts", 1, 3)
    steps.append(("text", _texts(size, random)))
    progress("lay speech", 2, 3)
    steps.append(("audio", _clips(size, random, media)))
    walks = _walks(size, np.random.default_rng([seed, 1]), media)
    progress("lay files", 3, 3)
    turns = random.permutation(np.repeat(np.arange(3), [len(asks) for _, asks in steps]))
    queues = [iter(asks) for _, asks in steps]
    asks = tuple(next(queues[int(turn)]) for turn in turns)
    wholes = dict.fromkeys(ask.source for ask in asks if ask.modality == "image" and ask.kind == "new")
    return Manifest(seed, quick, str(folder), asks, tuple(wholes)[: size.lossy], walks)
