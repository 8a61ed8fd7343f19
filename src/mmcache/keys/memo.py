"""The memo: digest of encoded bytes → digest of what they decode to, so that a file seen before is not decoded again.

Its key binds the realm's salt, the modality, the decoder and the options; its value carries a MAC over both. So a
memo that is damaged, swapped or written under other options makes a re-decode, never a wrong key.
"""

from __future__ import annotations

import hmac
from functools import lru_cache

from blake3 import blake3

from mmcache.forks import Lock
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.keys.options import ContentOptions
from mmcache.model.errors import InvalidInputError
from mmcache.model.memo import Memo


class LocalMemo:
    """A memo in this process: the last `limit` entries (≈ 200 bytes each). Thread-safe."""

    def __init__(self, limit: int = 65_536) -> None:
        self._limit = limit
        self._held: dict[bytes, bytes] = {}
        self._lock = Lock()

    def recall(self, key: bytes) -> bytes | None:
        """The remembered value, or None."""
        return self._held.get(key)

    def remember(self, key: bytes, value: bytes) -> None:
        """Keep it; the oldest entry goes when the memo is full."""
        with self._lock:
            self._held[key] = value
            if len(self._held) > self._limit:
                del self._held[next(iter(self._held))]


class Encoded:
    """Encoded bytes on their way through the memo. Hashing happens once, in one pass, without a copy."""

    __slots__ = ("_memo", "_name", "_salt")

    def __init__(
        self, raw: bytes, modality: str, decoder: str, memo: Memo | None, salt: bytes, options: ContentOptions
    ) -> None:
        self._memo = memo
        self._salt = salt
        self._name = b"" if memo is None else blake3(raw, key=_memo_key(salt, modality, decoder, options)).digest()

    @property
    def digest(self) -> bytes | None:
        """16 bytes that identify the encoded bytes in this realm, or None without a memo."""
        return self._name[:DIGEST_BYTES] or None

    def recall(self) -> bytes | None:
        """One or more digests, remembered for these bytes; None when nothing trustworthy is."""
        sealed = self._memo.recall(self._name) if self._memo is not None else None
        if sealed is None or len(sealed) < 2 * DIGEST_BYTES or len(sealed) % DIGEST_BYTES:
            return None
        value = bytes(sealed[:-DIGEST_BYTES])
        return value if hmac.compare_digest(bytes(sealed[-DIGEST_BYTES:]), self._seal(value)) else None

    def remember(self, value: bytes) -> None:
        """Keep digests for these bytes."""
        if self._memo is not None:
            self._memo.remember(self._name, value + self._seal(value))

    @staticmethod
    def check(found: bytes, remembered: bytes) -> None:
        """Raise `InvalidInputError` when decoding gave something else than it once did: never a wrong block."""
        if found != remembered:
            raise InvalidInputError(
                "these bytes now decode to something else than when they were remembered, with the same decoder "
                "version; is a decoder patched, or its behaviour changed in this process?"
            )

    def _seal(self, value: bytes) -> bytes:
        return blake3(framed("memo", self._name, value), key=self._salt).digest(length=DIGEST_BYTES)


@lru_cache(maxsize=1024)
def _memo_key(salt: bytes, modality: str, decoder: str, options: ContentOptions) -> bytes:
    return blake3(framed("memo key", modality.encode(), decoder.encode(), repr(options).encode()), key=salt).digest()
