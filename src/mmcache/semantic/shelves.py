"""`Shelves`: stored questions, by all that must be equal, then by pictures and sounds, then by meaning."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mmcache.likeness import picture, sound
from mmcache.likeness.base import Likeness, Nearness
from mmcache.likeness.picture import PictureSketch
from mmcache.likeness.sound import SoundSketch
from mmcache.likeness.words import Words, analyse, differences
from mmcache.model.key import Key
from mmcache.near.vectors import Vectors
from mmcache.semantic.gallery import Gallery

Floats = npt.NDArray[np.float32]
Place = tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]]
"""The digest of what is exact, and the digests of pictures and sounds, in order."""

MOST_COMBINATIONS = 64
"""Of nearly equal pictures, for a question about several."""
CLOSE = 0.85
"""Cosine of a question about the very same pictures from which none about others like them is looked for."""
PLAIN = 32
"""Questions on one shelf up to which they are compared one by one."""


@dataclass(frozen=True)
class Entry:
    """A stored question."""

    key: Key
    exact: bytes
    words: bytes
    """16 bytes that name its text."""
    text: str
    vector: Floats
    """float32 [dimensions], L2-normalised."""
    pictures: tuple[bytes, ...] = ()
    sounds: tuple[bytes, ...] = ()

    @property
    def place(self) -> Place:
        return self.exact, self.pictures, self.sounds

    @cached_property
    def analysed(self) -> Words:
        """For the gate on words."""
        return analyse(self.text)


@dataclass(frozen=True)
class Asked:
    """What is looked for: an entry not stored yet, with sketches of its pictures and sounds (None = the same only)."""

    entry: Entry
    pictures: tuple[PictureSketch | None, ...] = ()
    sounds: tuple[SoundSketch | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stored question near the asked one."""

    entry: Entry
    likeness: Likeness


class Shelf:
    """Questions that differ in nothing but their text."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self._labels: dict[Key, int] = {}
        self._vectors: Vectors | None = None
        self._next = 0

    def add(self, entry: Entry) -> None:
        label, self._next = self._next, self._next + 1
        self.entries[label], self._labels[entry.key] = entry, label
        if self._vectors is not None:
            self._vectors.add(label, entry.vector)
        elif len(self.entries) > PLAIN:
            self._vectors = Vectors(len(entry.vector))
            for known, other in self.entries.items():
                self._vectors.add(known, other.vector)

    def drop(self, key: Key) -> None:
        label = self._labels.pop(key)
        del self.entries[label]
        if self._vectors is not None:
            self._vectors.drop(label)

    def nearest(self, vector: Floats, count: int, least: float) -> list[tuple[Entry, float]]:
        """(entry, cosine), best first."""
        if self._vectors is not None:
            return [(self.entries[label], cosine) for label, cosine in self._vectors.nearest(vector, count, least)]
        found = [(entry, float(entry.vector @ vector)) for entry in self.entries.values()]
        found = [pair for pair in found if pair[1] >= least]
        return sorted(found, key=lambda pair: -pair[1])[:count]


class Shelves:
    """One scope's questions. Not safe under threads: its owner has a lock."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._shelves: dict[Place, Shelf] = {}
        self._pictures: Gallery[PictureSketch] = Gallery(picture.compare)
        self._sounds: Gallery[SoundSketch] = Gallery(sound.compare)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def add(self, asked: Asked) -> None:
        """Store a question, in place of an earlier one of its key."""
        entry = asked.entry
        self.drop(entry.key)
        self._entries[entry.key] = entry
        self._shelves.setdefault(entry.place, Shelf()).add(entry)
        for digest, sketch in zip(entry.pictures, asked.pictures, strict=True):
            self._pictures.add(digest, sketch)
        for digest, heard in zip(entry.sounds, asked.sounds, strict=True):
            self._sounds.add(digest, heard)

    def new_sketches(self, asked: Asked) -> Asked:
        """`asked` with those sketches only that no stored question has brought: what is worth keeping at rest."""
        entry = asked.entry
        return Asked(
            entry,
            tuple(None if d in self._pictures else s for d, s in zip(entry.pictures, asked.pictures, strict=True)),
            tuple(None if d in self._sounds else s for d, s in zip(entry.sounds, asked.sounds, strict=True)),
        )

    def drop(self, key: Key) -> None:
        """Forget a question; nothing where it is not known."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        shelf = self._shelves[entry.place]
        shelf.drop(key)
        if not shelf.entries:
            del self._shelves[entry.place]
        for digest in entry.pictures:
            self._pictures.remove(digest)
        for digest in entry.sounds:
            self._sounds.remove(digest)

    def entry(self, key: Key) -> Entry | None:
        """The question of a key."""
        return self._entries.get(key)

    def about(self, digest: bytes) -> list[Key]:
        """Questions about a picture or a sound."""
        return [key for key, entry in self._entries.items() if digest in entry.pictures or digest in entry.sounds]

    def used(self, key: Key) -> None:
        """It was served."""
        if key in self._entries:
            self._entries.move_to_end(key)

    def oldest(self) -> Key:
        """What was stored or served longest ago."""
        return next(iter(self._entries))

    def find(
        self, asked: Asked, *, least: float, picture: Nearness, sound: Nearness, count: int = 4
    ) -> list[Candidate]:
        """The nearest stored questions, at most `count`: those with the nearest pictures and sounds, then words, first.

        All gates but the words' have passed: what is exact is equal, pictures and sounds pair up in order, each within
        what is allowed.
        """
        wanted, found = asked.entry, list[Candidate]()
        words = wanted.analysed
        for place, seen, heard in self._places(asked, picture, sound):
            shelf = self._shelves.get(place)
            for entry, cosine in shelf.nearest(wanted.vector, count, least) if shelf is not None else ():
                if entry.key == wanted.key:
                    continue
                same = entry.words == wanted.words
                text = 1.0 if same else min(cosine, 1.0)
                gate = differences(words, entry.analysed)
                found.append(Candidate(entry, Likeness(wanted.words, entry.words, text, gate, seen, heard)))
            if place == wanted.place and found and found[0].likeness.text >= CLOSE:
                return found  # no need to search for crops
        found.sort(key=lambda one: (max(one.likeness.picture, one.likeness.sound), -one.likeness.text))
        return found[:count]

    def _places(self, asked: Asked, picture: Nearness, sound: Nearness) -> Iterator[tuple[Place, Nearness, Nearness]]:
        """Where to look: questions about the very same pictures and sounds first."""
        entry = asked.entry
        yield entry.place, Nearness.SAME, Nearness.SAME
        seen = [self._pictures.like(d, s, picture) for d, s in zip(entry.pictures, asked.pictures, strict=True)]
        heard = [self._sounds.like(d, s, sound) for d, s in zip(entry.sounds, asked.sounds, strict=True)]
        combinations = itertools.product(*(like.items() for like in (*seen, *heard)))
        for parts in itertools.islice(combinations, MOST_COMBINATIONS):
            pictures, sounds = parts[: len(seen)], parts[len(seen) :]
            if all(nearness is Nearness.SAME for _, nearness in parts):
                continue
            yield (
                (entry.exact, tuple(digest for digest, _ in pictures), tuple(digest for digest, _ in sounds)),
                _farthest(pictures),
                _farthest(sounds),
            )


def _farthest(parts: Sequence[tuple[bytes, Nearness]]) -> Nearness:
    return max((nearness for _, nearness in parts), default=Nearness.SAME)
