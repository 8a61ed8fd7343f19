"""`Questions`: the stored questions of all scopes, in memory for searching and in the ledger for the next start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from mmcache.likeness import picture, sound
from mmcache.likeness.base import Nearness
from mmcache.likeness.picture import PictureSketch
from mmcache.likeness.sound import SoundSketch
from mmcache.model.errors import CorruptFrameError, InvalidInputError
from mmcache.model.key import PART_BYTES, Key
from mmcache.scopes import Scope
from mmcache.semantic.ledger import Ledger
from mmcache.semantic.prompt import Identified
from mmcache.semantic.settings import Semantic
from mmcache.semantic.shelves import Asked, Candidate, Entry, Shelves

Floats = npt.NDArray[np.float32]

MOST_CHARACTERS = 20_000
"""Of a text that is looked up nearly: beyond, embedding and comparing would cost every request seconds."""


class Record(msgspec.Struct, array_like=True, frozen=True):
    """An entry at rest."""

    embedder: bytes
    exact: bytes
    words: bytes
    text: str
    vector: bytes
    """float32, little endian."""
    pictures: list[tuple[bytes, bytes | None]]
    """Digest, and sketch where no earlier entry brought it."""
    sounds: list[tuple[bytes, bytes | None]]


_decode = msgspec.msgpack.Decoder(Record).decode
_encode = msgspec.msgpack.Encoder().encode


class Questions:
    """Not safe under threads: its owner has a lock. Every method that writes raises `TierError`."""

    def __init__(self, semantic: Semantic, ledger: Ledger) -> None:
        self._semantic, self._ledger = semantic, ledger
        self._embedder = semantic.embedder_signature.digest
        self._shelves: dict[bytes, Shelves] = {}
        self._count = 0
        self._given: int | None = None
        self._dimensions: int | None = None
        self._upto = 0
        self.refresh()

    def __len__(self) -> int:
        return sum(len(shelves) for shelves in self._shelves.values())

    # Asking ---------------------------------------------------------------------------------------------------------

    def asked(self, found: Identified) -> Asked:
        """What is looked for: the prompt's text embedded, its pictures and sounds sketched. Runs the user's embedding.

        Raises `InvalidInputError` for a text that is too long, for an embedding that is no vector, and whatever the
        embedding raises.
        """
        text = found.words.canonical()
        if len(text) > MOST_CHARACTERS:
            raise InvalidInputError(f"a text of {len(text)} characters, more than {MOST_CHARACTERS}: exact hits only")
        entry = Entry(
            found.key,
            found.exact,
            found.words.digest,
            text,
            self._vector(self._semantic.embed(text)),
            tuple(part.digest for part in found.pictures),
            tuple(part.digest for part in found.sounds),
        )
        pictures, sounds = [], []
        for part in found.pictures:
            looked_at = self._semantic.picture is not Nearness.SAME
            pictures.append(picture.describe(part.canonical()) if looked_at else None)
        for part in found.sounds:
            listened_to = self._semantic.sound is not Nearness.SAME
            rate = self._semantic.content.sample_rate
            sounds.append(sound.describe(part.canonical(), rate) if listened_to else None)
        return Asked(entry, tuple(pictures), tuple(sounds))

    def _vector(self, vector: Any) -> Floats:
        found = _unit(vector)
        if self._given not in (None, len(found)):
            raise InvalidInputError(f"the text embedding gave {len(found)} numbers, and {self._given} before")
        self._given = len(found)
        return found

    def _fit(self, asked: Asked) -> None:
        """The embedding says how long vectors are. Where a damaged record said it first, all are read again. Raises
        `TierError`."""
        before, self._dimensions = self._dimensions, len(asked.entry.vector)
        if before not in (None, self._dimensions):
            self._shelves.clear()
            self._count = self._upto = 0
            self.refresh()

    def find(self, scope: Scope, asked: Asked) -> list[Candidate]:
        """The nearest stored questions of `scope`; see `Shelves.find`. Raises `TierError`."""
        self._fit(asked)
        shelves = self._shelves.get(scope.digest)
        if shelves is None:
            return []
        s = self._semantic
        return shelves.find(asked, least=s.least_similarity, picture=s.picture, sound=s.sound)

    # Keeping --------------------------------------------------------------------------------------------------------

    def add(self, scope: Scope, asked: Asked) -> Asked:
        """Find this one from now on, in this process. What `keep` needs. Raises `TierError`."""
        self._fit(asked)
        shelves = self._shelves.setdefault(scope.digest, Shelves())
        new = shelves.new_sketches(asked)
        self._put(shelves, asked)
        return new

    def _put(self, shelves: Shelves, asked: Asked) -> None:
        self._count -= len(shelves)
        shelves.add(asked)
        self._count += len(shelves)
        while self._count > self._semantic.most_entries:
            largest = max(self._shelves.values(), key=len)
            largest.drop(largest.oldest())
            self._count -= 1

    def keep(self, scope: Scope, asked: Asked) -> None:
        """Find it after a restart and in other processes, too. Needs no lock. Not where blocks are sealed: words are
        not."""
        if scope.chain.seals:
            return
        entry = asked.entry
        record = Record(
            self._embedder, entry.exact, entry.words, entry.text, entry.vector.astype("<f4").tobytes(),
            _media(entry.pictures, asked.pictures), _media(entry.sounds, asked.sounds),
        )  # fmt: skip
        self._ledger.add(entry.key, scope.digest, _encode(record), self._semantic.most_entries)

    def used(self, key: Key) -> None:
        """It was served."""
        if (shelves := self._shelves.get(key.scope)) is not None:
            shelves.used(key)

    def forget_here(self, keys: Sequence[Key]) -> None:
        """Their answers are gone, or there never were any."""
        for key in keys:
            if (shelves := self._shelves.get(key.scope)) is not None:
                self._count -= len(shelves)
                shelves.drop(key)
                self._count += len(shelves)

    def forget_at_rest(self, keys: Sequence[Key]) -> None:
        """The same, in the ledger. Needs no lock."""
        self._ledger.forget(keys)

    def entry(self, key: Key) -> Entry | None:
        """The stored question of an answer."""
        shelves = self._shelves.get(key.scope)
        return None if shelves is None else shelves.entry(key)

    def about(self, digest: bytes) -> list[Key]:
        """Stored questions about a picture or a sound, in all scopes."""
        return [key for shelves in self._shelves.values() for key in shelves.about(digest)]

    def refresh(self) -> None:
        """Find what other processes have stored since. Raises `TierError`."""
        for number, key, record in self._ledger.entries(self._upto):
            self._upto = number
            try:
                self._read(Key.from_bytes(key), _decode(record))
            except (msgspec.DecodeError, InvalidInputError, CorruptFrameError):
                continue  # of a newer version, or damaged: it is not found

    def _read(self, key: Key, record: Record) -> None:
        if record.embedder != self._embedder or key in self._shelves.get(key.scope, ()):
            return
        digests = (record.exact, record.words, *(digest for digest, _ in (*record.pictures, *record.sounds)))
        if any(len(digest) != PART_BYTES for digest in digests) or len(record.vector) % 4:
            raise CorruptFrameError("a stored question with digests or a vector of other lengths: drop it")
        if len(record.text) > MOST_CHARACTERS:
            return
        vector = _unit(np.frombuffer(record.vector, "<f4"))
        if self._dimensions not in (None, len(vector)):
            raise CorruptFrameError(f"a stored question with a vector of {len(vector)} numbers: drop it")
        pictures = [None if raw is None else PictureSketch.from_bytes(raw) for _, raw in record.pictures]
        sounds = [None if raw is None else SoundSketch.from_bytes(raw) for _, raw in record.sounds]
        places = tuple(digest for digest, _ in record.pictures), tuple(digest for digest, _ in record.sounds)
        entry = Entry(key, record.exact, record.words, record.text, vector, *places)
        self._dimensions = len(vector)
        self._put(self._shelves.setdefault(key.scope, Shelves()), Asked(entry, tuple(pictures), tuple(sounds)))


def _media(
    digests: Sequence[bytes], sketches: Sequence[PictureSketch | SoundSketch | None]
) -> list[tuple[bytes, bytes | None]]:
    return [
        (digest, None if sketch is None else sketch.to_bytes())
        for digest, sketch in zip(digests, sketches, strict=True)
    ]


def _unit(vector: Any) -> Floats:
    """L2-normalised float32 [n]. Raises `InvalidInputError`."""
    try:
        found = np.asarray(vector, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"the text embedding gave no numbers: {error}") from error
    if found.ndim == 2 and len(found) == 1:
        found = found[0]
    if found.ndim != 1 or not len(found):
        raise InvalidInputError(f"the text embedding gives one vector a text, not an array of shape {found.shape}")
    largest = float(np.abs(found).max())
    if not np.isfinite(largest) or largest == 0:
        raise InvalidInputError("the text embedding gave a vector of zeros, or one that is not finite")
    found = found / largest  # so that no square overflows, or vanishes
    return np.ascontiguousarray(found / np.linalg.norm(found), np.float32)
