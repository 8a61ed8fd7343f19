"""Runs of `warm_video` for table `warm`: real models once, whose answers and times are then replayed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from PIL import Image

from mmcache.cache import Cache
from mmcache.encoder import Encoder
from mmcache.keys.region import Region
from mmcache.lab.models import ImageEncoder, TextEncoder
from mmcache.lab.talks import Talk
from mmcache.model.errors import AssetError, SettingsError
from mmcache.prefetch.media import Encoders, Timeline, Uses, Warmed, WarmOptions, frame_at, sound_of, warm_video
from mmcache.prefetch.media.ocr import Print
from mmcache.prefetch.media.sound import RATE
from mmcache.prefetch.media.speech import Voice
from mmcache.prefetch.media.task import KINDS, Kind

MODALITIES = {
    "frame": "image", "find": "image", "read": "image", "listen": "audio", "hear": "audio", "text": "text",
}  # fmt: skip
IN_TURN: Mapping[Kind, float] = {"frame": 1e-12, "ocr": 1.0, "asr": 1e12}
"""Weights under which all frames come before all print, and that before all speech: a schedule that is none."""
Ask = tuple[str, Any, Region | None]
"""A later request: which encoder, its input, and the region."""


class Models:
    """The real ones. Each input is computed once; then its answer and the seconds that it took are known."""

    def __init__(self) -> None:
        """Loads them. Raises `AssetError`."""
        try:
            picture, text, print_, voice = ImageEncoder(threads=1), TextEncoder(), Print(1), Voice(threads=1)
        except SettingsError as error:
            raise AssetError(str(error)) from error
        self._functions: dict[str, Callable[[Any], Any]] = {
            "frame": picture.encode, "find": print_.find, "read": print_.read, "listen": voice.listen,
            "hear": voice.hear, "text": text.encode,
        }  # fmt: skip
        self._known: dict[tuple[str, bytes], tuple[Any, float]] = {}
        self.calls = dict.fromkeys(self._functions, 0)
        blank, silence = Image.new("RGB", (64, 64)), np.zeros(RATE, np.float32)
        for name, given in zip(self._functions, (blank, blank, blank, silence, silence, "a"), strict=True):
            try:
                self._functions[name](given)  # loads it
            except SettingsError as error:
                raise AssetError(str(error)) from error
        self.spent = 0.0
        """Seconds of model time that were spent."""
        self.seconds = 0.0
        """Of model time that was spent, or would have been: what a budget is measured by."""

    def encoders(self, cache: Cache) -> Encoders:
        """In front of them, a cache."""
        return Encoders.of(
            {
                name: cache.wrap(self._answering(name), modality=MODALITIES[name], signature=f"{name}-1", guard=False)
                for name in self._functions
            }
        )

    def cost(self, name: str, given: Any) -> float:
        """Seconds that computing it took; 0 where it was not."""
        return self._known.get((name, _digest(given)), (None, 0.0))[1]

    def _answering(self, name: str) -> Callable[[Any], Any]:
        def answer(given: Any) -> Any:
            place = name, _digest(given)
            if place not in self._known:
                began = time.perf_counter()
                value = self._functions[name](given)
                self._known[place] = value, time.perf_counter() - began
                self.spent += self._known[place][1]
            value, seconds = self._known[place]
            self.calls[name] += 1
            self.seconds += seconds
            return value

        answer.__qualname__ = f"answer_{name}"
        return answer


def _digest(given: Any) -> bytes:
    if isinstance(given, str):
        return blake3(given.encode()).digest()
    pixels = given[0] if isinstance(given, tuple) else given  # sound comes with its rate
    return blake3(repr(getattr(pixels, "size", 0)).encode() + pixels.tobytes()).digest()


@dataclass(frozen=True)
class Worth:
    """What a cache holds of a stream, as shares (0…1)."""

    hits: float
    """Of its requests."""
    seconds: float
    """Of the model time that they would take, were each computed."""


@dataclass
class Stream:
    """Later requests of an application that knows the timeline: at random moments of a talk, what there is then."""

    asks: list[Ask] = field(default_factory=list)

    @staticmethod
    def of(talk: Talk, line: Timeline, random: np.random.Generator, moments: int, kinds: Sequence[Kind]) -> Stream:
        """`moments` uniform over the talk; `kinds` of things that are asked for."""
        return Stream([one for at in random.uniform(0, talk.length_ms, moments) for one in _at(talk, line, at, kinds)])

    def held(self, cache: Cache, encoders: Encoders, models: Models) -> Worth:
        """What the cache holds of it now; computes nothing."""
        missing = object()
        held = [cache.get(_encoder(encoders, n).key(x, region=r), missing) is not missing for n, x, r in self.asks]
        costs = [
            models.cost(name, given if region is None else region.render(given)) for name, given, region in self.asks
        ]
        saved = sum(cost for cost, yes in zip(costs, held, strict=True) if yes)
        return Worth(sum(held) / max(1, len(held)), saved / max(1e-9, sum(costs)))

    def play(self, encoders: Encoders, models: Models) -> tuple[float, list[float]]:
        """Ask one after another: the share that no model was needed for, and seconds of each, model time included."""
        hits, seconds = 0, []
        for name, given, region in self.asks:
            calls, before, began = sum(models.calls.values()), models.seconds, time.perf_counter()
            encoder = _encoder(encoders, name)
            _ = encoder(given) if region is None else encoder.region(given, region)
            hits += sum(models.calls.values()) == calls
            seconds.append(time.perf_counter() - began + models.seconds - before)
        return hits / len(self.asks), seconds


def _encoder(encoders: Encoders, name: str) -> Encoder:
    found: Encoder = getattr(encoders, name)
    return found


def _at(talk: Talk, line: Timeline, at: float, kinds: Sequence[Kind]) -> Iterator[Ask]:
    moment = line.at(int(at))
    if moment.scene is not None:
        picture = frame_at(talk.path, moment.scene.frame_ms)
        if "frame" in kinds:
            yield "frame", picture, None
        for region in moment.regions if "ocr" in kinds else ():
            x, y, width, height = region.bbox
            yield "read", picture, Region.whole(*picture.size).crop((x, y, x + width, y + height))
            yield "text", region.text, None
    if moment.speech is not None and "asr" in kinds:
        yield "hear", (sound_of(talk.path, moment.speech.start_ms, moment.speech.end_ms), RATE), None
        if moment.speech.text:
            yield "text", moment.speech.text, None


def warmed(models: Models, talk: Talk, root: Path | None = None) -> Warmed:
    """All of a talk, in a cache of its own."""
    with Cache(root) as cache:
        return warm_video(cache, talk.path, models.encoders(cache))


def within(
    models: Models,
    talk: Talk,
    seconds: float,
    stream: Stream,
    weights: Mapping[Kind, float] | None = None,
    uses: Uses | None = None,
) -> Worth:
    """What of `stream` hits after warming for so many seconds of model time."""
    with Cache() as cache:
        encoders = models.encoders(cache)
        options = WarmOptions(budget_seconds=seconds) if weights is None else WarmOptions(
            budget_seconds=seconds, weights=weights
        )  # fmt: skip
        warm_video(cache, talk.path, encoders, options, uses=uses, clock=lambda: models.seconds)
        return stream.held(cache, encoders, models)


def used(stream: Stream, warmed: Warmed) -> Uses:
    """What is known after an application has asked for `stream` of what was warmed."""
    kinds: dict[str, Kind] = {"frame": "frame", "read": "ocr", "hear": "asr"}
    asked: dict[Kind, set[bytes]] = {kind: set() for kind in KINDS}
    for name, given, region in stream.asks:
        if name in kinds:
            asked[kinds[name]].add(_digest(given if region is None else region.render(given)))
    uses = Uses()
    for kind, blocks in asked.items():
        uses.count(kind, warmed=max(warmed.done[kind], len(blocks)), used=len(blocks))
    return uses
