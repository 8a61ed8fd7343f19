"""Unambiguous encoding of several byte strings as one: each is preceded by its length."""

from __future__ import annotations

DIGEST_BYTES = 16


def framed(domain: str, *parts: bytes) -> bytes:
    """`domain` and `parts`, each after its length (8 bytes, little endian).

    Injective: ("ab", "c") and ("a", "bc") differ, and so do two domains with equal parts.
    """
    return b"".join(piece for part in (domain.encode(), *parts) for piece in (len(part).to_bytes(8, "little"), part))
