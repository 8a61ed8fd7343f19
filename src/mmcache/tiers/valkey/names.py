"""What keys are called on a server. All names of one block have one hash tag: one slot, one node, one script."""

from __future__ import annotations

import binascii

from mmcache.model.key import PART_BYTES, Key

_TAG_CHARACTERS = 4 * PART_BYTES
"""Base64 of three parts."""
_STANDARD, _URL_SAFE = b"+/", b"-_"
_ENCODED, _DECODED = bytes.maketrans(_STANDARD, _URL_SAFE), bytes.maketrans(_URL_SAFE, _STANDARD)


class Names:
    """Of one prefix.

    Where D is the base64 of a block's key: `prefix{D}` is its head, `prefix{D}:l` the lease of who computes it,
    `prefix{D}:f` the token that may still store it, `prefix{D}:c:ID:N` a piece of a large one. `prefix{clock}` is the
    ledger of clocks.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix.encode()
        self._head = self.prefix.replace(b"%", b"%%") + b"{%b}"
        self.clock = self.prefix + b"{clock}"
        self.pattern = b"".join(_literal(char) for char in self.prefix) + b"{*"
        """Matches all names of this prefix that the tier makes, and no other prefix's."""

    def head(self, key: Key) -> bytes:
        """Where a block, or the head of a large one, is."""
        return self._head % binascii.b2a_base64(key, newline=False).translate(_ENCODED)

    def block(self, key: Key) -> tuple[bytes, bytes, bytes]:
        """Head, lease and fence, as scripts take them."""
        head = self.head(key)
        return head, head + b":l", head + b":f"

    def key_of(self, name: bytes) -> Key | None:
        """The key whose head is called so; None = that is no head's name."""
        start = len(self.prefix)
        if len(name) != start + _TAG_CHARACTERS + 2 or name[start : start + 1] != b"{" or name[-1:] != b"}":
            return None
        try:
            return Key.from_bytes(binascii.a2b_base64(name[start + 1 : -1].translate(_DECODED), strict_mode=True))
        except ValueError:  # binascii.Error is one; so is what a key of another length raises
            return None


def chunk_names(head: bytes, chunk_id: bytes, count: int) -> list[bytes]:
    """Where the pieces of a large block are."""
    return [b"%b:c:%b:%d" % (head, chunk_id, number) for number in range(count)]


def _literal(char: int) -> bytes:
    return (b"\\" if char in b"*?[]^\\" else b"") + bytes([char])
