"""One seed's worlds: the network, the catalogue, what was read of it, and how each part moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mmcache.keys.drift import FrozenStatistics, QuantisedKey
from mmcache.lab import drift_reading
from mmcache.lab.drift_cards import Card, Request, cards, pixels, requests
from mmcache.lab.drift_keys import Floats, Keyer, Parts, Store, content, frozen
from mmcache.lab.drift_model import BATCH, Tower, train
from mmcache.lab.table import Progress

SHIFT = 0.07
"""The published move of batch-norm means, in running deviations."""
LESS_CONFIDENT = 0.12
"""The published fall of OCR's confidence."""
DARKER = 0.8
"""The light of the stream that running statistics follow, at its end."""
BLURS = tuple(number / 4 for number in range(8, 19))
BLOCKS = 20
"""A window of requests is cut into so many, with one batch of the stream before each."""


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    training: int
    epochs: int
    catalogue: int
    warm: int
    window: int
    read_for_blur: int


QUICK, FULL = Size(800, 6, 60, 1500, 500, 8), Size(1400, 12, 300, 6000, 1000, 24)
HELD_OUT = 300


@dataclass
class World:
    """All of one seed."""

    seed: int
    size: Size
    tower: Tower
    accuracy: float
    catalogue: list[Card]
    pool: Floats
    """Pixels [n, 3, 44, 80] of cards that are not in the catalogue: the stream that statistics follow."""
    images: Floats
    """Pixels of the catalogue."""
    key: QuantisedKey
    readings: list[drift_reading.Reading]
    blurred: list[drift_reading.Reading]
    blur: float
    dimmed: dict[float, Floats] = field(default_factory=dict)

    @property
    def fall(self) -> float:
        """By what share OCR's confidence really fell."""
        sure, less = (np.mean([one.confidence for one in part]) for part in (self.readings, self.blurred))
        return float(1 - less / sure)

    def parts(self) -> Parts:
        """Before anything moves."""
        return Parts(self.tower.features(self.images)[1], tuple(one.cut for one in self.readings), "v3")


def build(seed: int, size: Size, progress: Progress) -> World:
    """Train, calibrate, read. About 40 s a seed on a free core. Raises `AssetError`."""
    count = size.training + HELD_OUT + size.catalogue
    made = cards(count, seed)
    known, held_out, catalogue = np.split(np.arange(count), [size.training, size.training + HELD_OUT])
    own = [made[place] for place in catalogue]
    tower, accuracy = train([made[k] for k in known], [made[k] for k in held_out], seed, size.epochs, progress)
    pool = pixels([made[k].picture() for k in (*known, *held_out)])
    before, _ = tower.features(pool)
    key = QuantisedKey(FrozenStatistics.fit(before, name=f"lab tower {seed}"))
    readings = []
    for place, card in enumerate(own):
        progress("reading the lines", place, 2 * len(own))
        readings.append(drift_reading.read(card.strip()))
    blur = _blur(own[: size.read_for_blur], readings)
    blurred = []
    for place, card in enumerate(own):
        progress("reading the lines", len(own) + place, 2 * len(own))
        blurred.append(drift_reading.read(card.strip(), blur))
    images = pixels([card.picture() for card in own])
    return World(seed, size, tower, accuracy, own, pool, images, key, readings, blurred, blur)


def _blur(some: list[Card], readings: list[drift_reading.Reading]) -> float:
    """Whose confidence falls by nearest to the published share, on a few lines."""
    clean = np.mean([one.confidence for one in readings[: len(some)]])

    def miss(blur: float) -> float:
        less = np.mean([drift_reading.read(card.strip(), blur).confidence for card in some])
        return float(abs(1 - less / clean - LESS_CONFIDENT))

    return float(min(BLURS, key=miss))


Window = Callable[[int], Keyer]
"""The keyer of block 0 … BLOCKS − 1."""


@dataclass(frozen=True)
class Hits:
    """Of one key under one move, % of requests."""

    before: float
    under: float
    after: float
    wrong: float
    """Wrong hits of all three windows, % of requests."""


def windows(world: World) -> list[list[Request]]:
    """Requests: to warm up, and three windows."""
    size = world.size
    made = requests(world.catalogue, size.warm + 3 * size.window, world.seed)
    edges = [size.warm + number * size.window for number in range(3)]
    return [made[: size.warm], *(made[edge : edge + size.window] for edge in edges)]


def replay(world: World, steady: Keyer, moved: Window) -> Hits:
    """Warm up and ask a window with `steady`, then two with what `moved` gives for each block."""
    warm, *asked = windows(world)
    store = Store(world.catalogue, {})
    store.ask(warm, steady)
    before, wrong = store.ask(asked[0], steady)
    rates, step = [], world.size.window // BLOCKS
    for number, window in enumerate(asked[1:]):
        found = [
            store.ask(window[block * step : (block + 1) * step], moved(number * BLOCKS + block))
            for block in range(BLOCKS)
        ]
        rates.append(float(np.mean([hits for hits, _ in found])))
        wrong += float(np.mean([bad for _, bad in found]))
    return Hits(before, rates[0], rates[1], wrong / 3)


def moves(world: World) -> dict[str, Window]:
    """Naive keyers under each move."""
    parts = world.parts()
    shifted = world.tower.copy()
    shifted.shift(SHIFT, world.seed)
    shifted_features = shifted.features(world.images)[1]
    less = tuple(one.cut for one in world.blurred)
    steps: dict[str, Parts] = {
        "none": parts,
        "bn-shift": parts.with_(running=shifted_features),
        "ocr": parts.with_(texts=less),
        "tokenizer": parts.with_(vocabulary="tekken-2407"),
        "all": Parts(shifted_features, less, "tekken-2407"),
    }
    made: dict[str, Window] = {}
    for name, one in steps.items():
        keyer = one.naive()
        made[name] = lambda block, keyer=keyer: keyer  # type: ignore[misc]
    followed = [parts.with_(running=features).naive() for features in follow(world)]
    made["bn-follows"] = lambda block: followed[block]
    return made


def follow(world: World) -> list[Floats]:
    """Features [cards, 64] of the same catalogue while statistics follow a stream that grows darker, block by block."""
    tower, rng = world.tower.copy(), np.random.default_rng(world.seed)
    found = []
    for block in range(2 * BLOCKS):
        light = 1 - (1 - DARKER) * min(1.0, (block + 1) / BLOCKS)
        tower.follow(world.pool[rng.choice(len(world.pool), BATCH, replace=False)] * np.float32(light))
        found.append(tower.features(world.images)[1])
    return found


def ours(world: World, light: float = 1.0) -> tuple[Keyer, Keyer]:
    """(frozen, content) keys of the catalogue; the keyer's own layers keep their statistics, whatever moves.

    light: of the pictures themselves.
    """
    before, _ = world.tower.features(np.clip(world.images * np.float32(light), 0, 1))
    return frozen(world.key, before), content(world.catalogue)
