"""`Key`: the only key class. Its bytes are its identity, so hashing and comparing run in C."""

from __future__ import annotations

from mmcache.model.errors import InvalidInputError

PART_BYTES = 16
"""Bytes of each of a key's three parts (128 bits)."""

WHOLE = bytes(PART_BYTES)
"""The region part of a key that names a whole input."""


class Key(bytes):
    """48 bytes: scope ‖ content digest ‖ region digest.

    * `scope`: realm salt (tenant and namespace) and signature digest; nothing is shared across scopes.
    * `digest`: keyed BLAKE3 of the canonical content.
    * `region`: keyed digest of the region recipe, or `WHOLE`.

    A subclass of `bytes`, so that `dict` lookups cost no Python call and the hash is cached.
    """

    __slots__ = ()

    def __new__(cls, scope: bytes, digest: bytes, region: bytes = WHOLE) -> Key:
        """Join three 16-byte parts. Raises `InvalidInputError` when a part has another length."""
        if not len(scope) == len(digest) == len(region) == PART_BYTES:
            raise InvalidInputError(
                f"a key has three parts of {PART_BYTES} bytes, got {len(scope)}, {len(digest)}, {len(region)}"
            )
        return super().__new__(cls, b"%b%b%b" % (scope, digest, region))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Key:
        """The key with exactly these 48 bytes."""
        return cls(raw[:16], raw[16:32], raw[32:])

    @classmethod
    def parse(cls, text: str) -> Key:
        """The key that `str(key)` printed (hex, dots optional)."""
        try:
            raw = bytes.fromhex(text.replace(".", ""))
        except ValueError as error:
            raise InvalidInputError(f"not a key: {text!r}; a key is 96 hex digits") from error
        return cls.from_bytes(raw + bytes(PART_BYTES) if len(raw) == 2 * PART_BYTES else raw)

    @property
    def scope(self) -> bytes:
        """Realm and signature, 16 bytes."""
        return self[:16]

    @property
    def digest(self) -> bytes:
        """Canonical content, 16 bytes."""
        return self[16:32]

    @property
    def region(self) -> bytes:
        """Region recipe, 16 bytes; `WHOLE` for the whole input."""
        return self[32:]

    @property
    def short(self) -> str:
        """16 hex digits for spans and tables: the first 8 bytes of the three parts, XORed (cheap in C, too)."""
        one, two, three = (int.from_bytes(self[start : start + 8]) for start in (0, 16, 32))
        return f"{one ^ two ^ three:016x}"

    def __str__(self) -> str:
        whole = self.region == WHOLE
        return ".".join(part.hex() for part in (self.scope, self.digest, *(() if whole else (self.region,))))

    def __repr__(self) -> str:
        return f"Key({self})"

    def __reduce__(self) -> tuple[type[Key], tuple[bytes, bytes, bytes]]:
        return Key, (self.scope, self.digest, self.region)
