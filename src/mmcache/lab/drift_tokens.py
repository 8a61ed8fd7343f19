"""Real successive tokenizers of one family: Mistral's v1, v3 (SentencePiece files) and Tekken (byte pairs by rank).

Read from the pinned package's files, without its code. v3 renumbers v1's pieces; Tekken of September 2024 repacks
that of July; Tekken splits texts differently from v3.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import msgspec

from mmcache.lab.assets import Asset
from mmcache.model.errors import AssetError

FILES = {
    "v1": ("data/tokenizer.model.v1", "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055"),
    "v3": (
        "data/mistral_instruct_tokenizer_240323.model.v3",
        "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33",
    ),
    "tekken-2407": ("data/tekken_240718.json", "eccd1665d2e477697c33cb7f0daa6f6dfefc57a0a6bceb66d4be52952f827516"),
    "tekken-2409": ("data/tekken_240911.json", "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316"),
}
_MARK = "▁"


@dataclass(frozen=True)
class Tokenizer:
    """Text → pieces and their ids."""

    name: str
    split: Callable[[str], list[list[bytes]]]
    """Words as lists of starting pieces; nothing merges across words."""
    rank: dict[bytes, int]
    """Pieces that may arise, the lowest rank first."""
    ids: dict[bytes, int]

    def pieces(self, text: str) -> list[bytes]:
        """Byte-pair merging: the pair of lowest rank first, until none is left."""
        return [piece for word in self.split(text) for piece in self._merge(word)]

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids; −1 for a piece that the vocabulary lacks."""
        return tuple(self.ids.get(piece, -1) for piece in self.pieces(text))

    def features(self, text: str) -> tuple[float, float, float]:
        """What a monitor can watch of a text's tokens: how many, how many a character, and their mean id."""
        ids = self.encode(text)
        return float(len(ids)), len(ids) / max(1, len(text)), sum(ids) / max(1, len(ids)) / 100_000

    def _merge(self, word: list[bytes]) -> list[bytes]:
        parts = list(word)
        while len(parts) > 1:
            ranked = [(self.rank.get(a + b), place) for place, (a, b) in enumerate(pairwise(parts))]
            known = [(rank, place) for rank, place in ranked if rank is not None]
            if not known:
                break
            _, place = min(known)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return parts


@cache
def tokenizer(name: str) -> Tokenizer:
    """One of `FILES`. Raises `AssetError`."""
    file, sha256 = FILES[name]
    data = Asset("mistral_common", file, sha256).read()
    return _tekken(name, data) if name.startswith("tekken") else _sentencepiece(name, data)


class _Piece(msgspec.Struct):
    rank: int
    token_bytes: str


class _Config(msgspec.Struct):
    pattern: str
    default_vocab_size: int
    default_num_special_tokens: int


class _Tekken(msgspec.Struct):
    config: _Config
    vocab: list[_Piece]


def _tekken(name: str, data: bytes) -> Tokenizer:
    try:
        import regex
    except ImportError as error:
        raise AssetError("Tekken's pattern needs the package regex; run `python -m pip install regex`") from error
    stored = msgspec.json.decode(data, type=_Tekken)
    own = stored.config.default_vocab_size - stored.config.default_num_special_tokens
    rank = {base64.b64decode(piece.token_bytes): piece.rank for piece in stored.vocab[:own]}
    pattern = regex.compile(stored.config.pattern)
    ids = {piece: number + stored.config.default_num_special_tokens for piece, number in rank.items()}

    def split(text: str) -> list[list[bytes]]:
        return [[bytes([byte]) for byte in word.encode()] for word in pattern.findall(text)]

    return Tokenizer(name, split, rank, ids)


def _sentencepiece(name: str, data: bytes) -> Tokenizer:
    pieces = [_piece(message) for field, message in _fields(data) if field == 1]
    ids = {piece: number for number, (piece, _, _) in enumerate(pieces)}
    normal = 1
    rank = {piece: round(-score) for piece, score, kind in pieces if kind == normal}

    def split(text: str) -> list[list[bytes]]:
        marked = _MARK + text.replace(" ", _MARK)
        return [[letter.encode() for letter in marked]]

    return Tokenizer(name, split, rank, ids)


def _piece(message: bytes) -> tuple[bytes, float, int]:
    """Text, score and kind of a SentencePiece."""
    import struct

    text, score, kind = b"", 0.0, 1
    for field, value in _fields(message):
        match field:
            case 1:
                text = value
            case 2:
                (score,) = struct.unpack("<f", value)
            case 3:
                kind = int.from_bytes(value, "little")
    return text, score, kind


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and raw value of each field of a protocol-buffers message."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(data):
        tag = varint()
        field, wire = tag >> 3, tag & 7
        if wire == 0:
            yield field, varint().to_bytes(8, "little")
            continue
        size = varint() if wire == 2 else 4 if wire == 5 else 8
        yield field, data[place : place + size]
        place += size
