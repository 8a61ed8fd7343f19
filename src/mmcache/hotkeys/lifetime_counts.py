"""`KeyCounts`: uses of keys in intervals, as a model of lifetimes looks at them; bounded, whatever comes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mmcache.lifespan.inputs import Floats, Integers, heat_of_alike, nearest, series, signs, unit
from mmcache.lifespan.model import ABOUT, LifeModel, heat_histogram
from mmcache.model.errors import InvalidInputError
from mmcache.model.key import Key

MOST_KEYS = 65_536
MOST_TENANTS = 64
"""Tenants of which it is counted what is hot among what is alike; keys of further ones go by their own uses."""
_ROOM = 1024
_NOBODY = -1


class KeyCounts:
    """The last L full intervals and the one under way. Of the texts and images it keeps 32 numbers a key.

    What is hot among what is alike is counted for each tenant by itself: nobody's keys become hot by others' uses.
    """

    def __init__(self, model: LifeModel, most_keys: int = MOST_KEYS) -> None:
        self._model, self._most = model, max(2, most_keys)
        self._columns = model.scale.intervals + 1
        self._interval: int | None = None
        self._began = 0
        self._slots: dict[Key, int] = {}
        self._keys: list[Key | None] = []
        self._free: list[int] = []
        self._tenants: dict[str, int] = {}
        self._nothing = model.about(np.zeros((1, model.width), np.float32), np.zeros((1, 64), np.float32))[0]
        self._uses = np.zeros((0, self._columns), np.float32)
        self._about = np.zeros((0, ABOUT), np.float32)
        self._facts = np.zeros((0, 5), np.int64)  # first, last interval; text, image group; tenant
        self._grow(min(_ROOM, self._most))
        groups = {"text": len(model.text_groups), "image": len(model.image_groups)}
        self._sums = {name: np.zeros((0, count, self._columns), np.float32) for name, count in groups.items()}
        self._traffic = np.zeros((1, self._columns), np.float32)
        """Row 0: of tenants that are not told apart."""

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def interval(self) -> int | None:
        """The one under way, counted from the epoch."""
        return self._interval

    @property
    def watched(self) -> int:
        """Full intervals since it began, at most those that are looked back on."""
        return 0 if self._interval is None else min(self._columns - 1, self._interval - self._began)

    def roll(self, interval: int) -> int:
        """`interval` is under way now; how many have ended. Time never runs backwards here."""
        if self._interval is None:
            self._interval = self._began = interval
            return 0
        ended = max(0, interval - self._interval)
        for passed in range(1, min(ended, self._columns) + 1):
            column = (interval - min(ended, self._columns) + passed) % self._columns
            self._uses[:, column] = 0.0
            self._traffic[:, column] = 0.0
            for sums in self._sums.values():
                sums[:, :, column] = 0.0
        self._interval += ended
        return ended

    def use(self, key: Key, tenant: str, weight: float = 1.0) -> None:
        """Count a use, in the interval under way."""
        assert self._interval is not None, "roll first"
        slot = self._slot(key, tenant)
        column, facts = self._interval % self._columns, self._facts[slot]
        self._uses[slot, column] += weight
        if facts[0] < 0:
            facts[0] = self._interval
        facts[1] = self._interval
        place = int(facts[4])
        self._traffic[place + 1, column] += weight
        if place >= 0:
            for name, group in (("text", int(facts[2])), ("image", int(facts[3]))):
                if group >= 0:
                    self._sums[name][place, group, column] += weight

    def describe(self, key: Key, tenant: str, text: npt.ArrayLike | None, image: int | None) -> None:
        """What `key` is about. Raises `InvalidInputError` for what is not one embedding, and a hash of 64 bits."""
        assert self._interval is not None, "roll first"
        model = self._model
        shown = np.zeros((1, model.width), np.float32) if text is None else unit(text)
        if shown.shape != (1, model.width):
            raise InvalidInputError(f"the embedding of one text is {model.width} numbers, not {list(shown.shape)}")
        if image is not None and not -(1 << 63) <= image < 1 << 64:
            raise InvalidInputError(f"an image hash has 64 bits; {image} has more")
        codes = np.array([(image or 0) % (1 << 64)], np.uint64)
        bits = np.zeros((1, 64), np.float32) if image is None else signs(codes)
        about = model.about(shown, bits)[0]
        slot = self._slot(key, tenant)
        self._about[slot] = about
        self._facts[slot, 2] = nearest(shown, model.text_groups)[0]
        self._facts[slot, 3] = nearest(bits, model.image_groups)[0]

    def _slot(self, key: Key, tenant: str) -> int:
        slot = self._slots.get(key)
        if slot is not None:
            return slot
        if not self._free:
            if len(self._keys) < self._most:
                self._grow(min(len(self._keys), self._most - len(self._keys)))
            else:
                self._forget(max(1, self._most // 4))
        slot = self._free.pop()
        assert self._interval is not None
        self._slots[key], self._keys[slot] = slot, key
        self._uses[slot], self._about[slot] = 0.0, self._nothing
        self._facts[slot] = (-1, self._interval, -1, -1, self._tenant(tenant))
        return slot

    def _tenant(self, tenant: str) -> int:
        place = self._tenants.get(tenant)
        if place is None:
            if len(self._tenants) >= MOST_TENANTS:
                return _NOBODY
            place = self._tenants[tenant] = len(self._tenants)
            for name, sums in self._sums.items():
                self._sums[name] = np.concatenate([sums, np.zeros((1, *sums.shape[1:]), np.float32)])
            self._traffic = np.concatenate([self._traffic, np.zeros((1, self._columns), np.float32)])
        return place

    def _grow(self, more: int) -> None:
        first = len(self._keys)
        self._keys += [None] * more
        self._free += range(first + more - 1, first - 1, -1)
        self._uses = np.concatenate([self._uses, np.zeros((more, self._columns), np.float32)])
        self._about = np.concatenate([self._about, np.zeros((more, ABOUT), np.float32)])
        self._facts = np.concatenate([self._facts, np.full((more, 5), -1, np.int64)])

    def _forget(self, count: int) -> None:
        """Those that were used longest ago; of these, least."""
        order = np.lexsort((self._uses.sum(axis=1), self._facts[:, 1]))
        for slot in order[:count].tolist():
            key = self._keys[slot]
            assert key is not None
            del self._slots[key]
            self._keys[slot] = None
            self._free.append(slot)

    # What a model is asked about -----------------------------------------------------------------------------------

    def _last(self, count: int) -> npt.NDArray[np.int64]:
        """The columns of the last full intervals, oldest first."""
        assert self._interval is not None
        return np.arange(self._interval - count, self._interval) % self._columns

    def day(self, slots: npt.NDArray[np.intp] | slice = slice(None)) -> Floats:
        """[n]: uses within the last full day."""
        return np.asarray(self._uses[slots][:, self._last(self._model.scale.day)].sum(axis=1), np.float32)

    def candidates(self, most: int) -> npt.NDArray[np.intp]:
        """Slots that were used within the last full day, most used first, at most so many."""
        uses = self.day()
        held = np.zeros(len(uses), bool)
        held[list(self._slots.values())] = True
        found = np.flatnonzero((uses > 0) & held)
        return found[np.argsort(-uses[found], kind="stable")][:most]

    def keys(self, slots: npt.NDArray[np.intp]) -> list[Key]:
        """Their keys."""
        found = [self._keys[slot] for slot in slots.tolist()]
        return [key for key in found if key is not None]

    def known(self, slots: npt.NDArray[np.intp]) -> Integers:
        """[n]: for how many full intervals each has been known."""
        assert self._interval is not None
        return np.asarray(self._interval - self._facts[slots, 0], np.int64)

    def hot_now(self, keys: Sequence[Key]) -> npt.NDArray[np.bool_]:
        """Whether each was hot within the last full day; who was forgotten was not."""
        slots = np.array([self._slots.get(key, -1) for key in keys], np.intp)
        return np.asarray((self.day(slots) >= self._model.scale.hot_uses) & (slots >= 0), bool)

    def asked(self, slots: npt.NDArray[np.intp]) -> tuple[Floats, Floats]:
        """For `LifeModel.logits`: the series of each, and what it is about."""
        scale = self._model.scale
        assert self._interval is not None
        columns, facts = self._last(scale.intervals), self._facts[slots]
        own, tenants = self._uses[slots][:, columns], facts[:, 4]
        heats = {name: np.zeros_like(own) for name in self._sums}
        for tenant in np.unique(tenants[tenants >= 0]).tolist():
            its = tenants == tenant
            for name, place in (("text", 2), ("image", 3)):
                heats[name][its] = heat_of_alike(self._sums[name][tenant][:, columns], own[its], facts[its, place])
        end = self._interval * scale.interval_seconds
        traffic = self._traffic[tenants + 1][:, columns]
        seen = self.known(slots)
        return series(scale, own, seen, self.watched, heats["text"], heats["image"], traffic, end), self._about[slots]

    def histograms(self) -> dict[str, npt.NDArray[np.int64]]:
        """What the last full day was like; compare `LifeModel.baseline`."""
        columns = self._last(self._model.scale.day)
        found = {
            name: sums[:, :, columns].sum(axis=(0, 2)).astype(np.int64)
            for name, sums in self._sums.items()
            if sums.shape[1]
        }
        return {**found, "heat": heat_histogram(self.day())}
