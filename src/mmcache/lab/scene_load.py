"""Made-up requests for patches and for scenes, the same for a seed.

Patches: single blocks. Popularity follows Zipf's law; what is popular changes, slowly; a third is asked for once.
Scenes: all tiles of one of a few scenes at once, and the request is served only when all of them are held: half are
rounds that visit every scene in turn, half follow Zipf's law. Now and then a scene changes, and a third of its tiles
with it: those are new blocks, and the old ones will never be asked for again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mmcache.lab.attended import Material
from mmcache.lab.replay import Hits
from mmcache.lab.traces.trace import Floats, Trace

SECONDS = 7200.0
PATCHES, SCENES = 3000, 30
"""Popular at a time: about as many bytes of each."""
ONCE = 0.3
CHANGE_SECONDS = 2400.0
"""Mean time between two changes of a scene."""
CHANGED = 3
"""One tile in so many changes."""
TILE_SECONDS = 0.143
"""To compute a tile; a patch costs as much a byte."""
NOISE = 0.2
"""Of one cross-attention's entropy around its block's, as a share."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Load:
    """Requests, and the block requests that they consist of."""

    trace: Trace
    whole: Integers
    """int64 [n]: the request that each block request belongs to."""
    scene: npt.NDArray[np.bool_]
    """bool [requests]."""
    entropies: Floats
    """float64 [blocks]: nats."""

    def served(self, hits: Hits) -> npt.NDArray[np.bool_]:
        """bool [requests]: all blocks of it were held."""
        held = np.ones(len(self.scene), np.bool_)
        np.logical_and.at(held, self.whole, hits)
        return held

    def saved(self, hits: Hits) -> dict[str, float]:
        """Shares 0…1: of `patch` requests and of `scene` requests that were served, and of all `work` that these save.

        The last two thirds of the requests count; the cache begins empty.
        """
        work = np.bincount(self.whole, weights=self.trace.costs[self.trace.ids])
        late = np.arange(len(self.scene)) >= len(self.scene) // 3
        served = self.served(hits)
        found = {"work": float(work[served & late].sum() / work[late].sum())}
        for name, which in (("scene", self.scene & late), ("patch", ~self.scene & late)):
            if which.any():
                found[name] = float(served[which].mean())
        return found


def draw(share: float, blocks: int, seed: int, made_of: Material) -> Load:
    """About `blocks` block requests within two hours; `share` (0…1) of the work asked for is scenes'."""
    random = np.random.default_rng([seed, round(1000 * share)])
    patches_a_scene = made_of.patches * made_of.tiles * (1 - share) / share if share else np.inf
    scenes = round(blocks / (made_of.tiles + patches_a_scene)) if share else 0
    patches = blocks - scenes * made_of.tiles if share < 1 else 0
    times = np.sort(random.random(scenes + patches)) * SECONDS
    scene = np.zeros(scenes + patches, np.bool_)
    scene[random.permutation(scenes + patches)[:scenes]] = True
    asked = np.zeros(len(scene), np.int64)
    asked[~scene] = _patches(random, times[~scene])
    asked[scene] = _scenes(random, int(scene.sum()))
    sizes = np.where(scene, made_of.tiles, 1)
    whole = np.repeat(np.arange(len(scene)), sizes)
    tile = np.arange(len(whole)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    keys = np.where(scene[whole], 10**9 + _tiles(random, asked[whole], tile, times[whole], made_of.tiles), asked[whole])
    trace = Trace.of(
        "boundary", keys, times[whole], np.where(scene[whole], made_of.tile_bytes, made_of.patch_bytes),
        notes=("made up",),
    )  # fmt: skip
    costs = TILE_SECONDS * trace.sizes / made_of.tile_bytes
    trace = replace(trace, costs=costs, modalities=("image",))
    return Load(trace, whole, scene, _entropies(random, trace, made_of))


def _ranks(random: np.random.Generator, count: int, kinds: int, exponent: float) -> Integers:
    weights = np.arange(1, kinds + 1, dtype=np.float64) ** -exponent
    return np.searchsorted(np.cumsum(weights / weights.sum()), random.random(count)).astype(np.int64)


def _patches(random: np.random.Generator, times: Floats) -> Integers:
    """Half of what is popular is other patches two hours later."""
    keys = _ranks(random, len(times), PATCHES, 0.9) + (times / SECONDS * PATCHES / 2).astype(np.int64)
    once = random.random(len(times)) < ONCE
    keys[once] = 10**6 + np.arange(int(once.sum()))
    return keys


def _scenes(random: np.random.Generator, count: int) -> Integers:
    asked = _ranks(random, count, SCENES, 0.9)
    rounds = random.random(count) < 0.5
    asked[rounds] = np.arange(int(rounds.sum())) % SCENES
    return asked


def _tiles(random: np.random.Generator, asked: Integers, tile: Integers, times: Floats, count: int) -> Integers:
    """A number for each tile of each scene in the revision that is current."""
    revision = np.zeros(len(asked), np.int64)
    for scene in range(SCENES):
        mine = asked == scene
        changes = np.cumsum(random.exponential(CHANGE_SECONDS, 20))
        number = np.searchsorted(changes, times[mine])
        # Each change replaces every third tile, beginning at another one: a tile's revision is its last change.
        place = (tile[mine] % CHANGED)[:, None] == (number[:, None] - np.arange(CHANGED)) % CHANGED
        revision[mine] = number - np.argmax(place, axis=1)
    return np.maximum(revision, 0) * SCENES * count + asked * count + tile


def _entropies(random: np.random.Generator, trace: Trace, made_of: Material) -> Floats:
    patch = trace.sizes == made_of.patch_bytes
    drawn = np.where(
        patch, random.choice(made_of.patch_entropies, len(patch)), random.choice(made_of.tile_entropies, len(patch))
    )
    found: Floats = drawn
    return found


def linked(load: Load, seed: int) -> Load:
    """The same entropies, dealt out so that they tell of reuse: the more often used, the lower, but for noise."""
    random = np.random.default_rng([seed, 5])
    uses = np.bincount(load.trace.ids, minlength=len(load.entropies)).astype(np.float64)
    order = np.argsort(-np.log(uses) + random.normal(0.0, 1.0, len(uses)), kind="stable")
    entropies = np.empty_like(load.entropies)
    entropies[order] = np.sort(load.entropies)
    return replace(load, entropies=entropies)
