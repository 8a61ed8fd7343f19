"""`Memo`: a bounded map of byte strings that may forget."""

from __future__ import annotations

from typing import Protocol


class Memo(Protocol):
    """Digest of encoded bytes → canonical digest, and the like. In memory, or kept by the disk tier."""

    def recall(self, key: bytes) -> bytes | None:
        """The remembered value. Never raises for a damaged store: it forgets."""

    def remember(self, key: bytes, value: bytes) -> None:
        """Keep it, if possible."""
