"""AES-GCM: encryption at rest, bound to the block it was made for (NIST SP 800-38D)."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from blake3 import blake3

from mmcache.codecs.base import Params
from mmcache.model.block import BytesSpec, Spec
from mmcache.model.errors import CodecError
from mmcache.model.frame import Buffer

NONCE_BYTES = 12
TAG_BYTES = 16

_ciphers: dict[str, Any] = {}
"""By key id. Frames name the key that they need, never hold it, so a process must have been given it."""


class AESGCM:
    """Lossless; covers every leaf and the skeleton. Needs the extra `mmcache[crypto]`.

    key: 16, 24 or 32 bytes; it stays in this process, and serves every frame that names it. Without it, `key_id` names
    one given before. To rotate keys, make an `AESGCM` of the old one too: what it sealed stays readable.
    Each encoding takes a random 96-bit nonce: use one key for at most 2³² leaves.

    What is authenticated besides the bytes: the frame's key, tenant, namespace, signature, and the leaf's place,
    kind, dtype, shape and length. A leaf moved to another frame does not decode. A frame's other facts (times, cost,
    model name, shapes) are not secret.
    """

    name: ClassVar[str] = "aesgcm"
    lossless: ClassVar[bool] = True
    packs_bytes: ClassVar[bool] = True
    seals: ClassVar[bool] = True

    def __init__(self, key: bytes | None = None, key_id: str | None = None) -> None:
        if key is not None:
            key_id = blake3(key, derive_key_context="mmcache 2026 aes-gcm key id").hexdigest(length=8)
            _ciphers[key_id] = _cipher(key)
        elif key_id is None:
            if len(_ciphers) != 1:
                raise CodecError("aesgcm needs its key: pass `codec=Chain(…, AESGCM(key))`")
            key_id = next(iter(_ciphers))
        self.key_id = key_id
        self._context = b""

    @property
    def params(self) -> Params:
        return {"key_id": self.key_id}

    def bound_to(self, context: bytes) -> AESGCM:
        """This cipher for one leaf of one frame."""
        bound = AESGCM(key_id=self.key_id)
        bound._context = context
        return bound

    def out_spec(self, spec: Spec) -> BytesSpec:
        if not isinstance(spec, BytesSpec):
            raise CodecError("aesgcm takes bytes")
        return BytesSpec(spec.max_bytes + NONCE_BYTES + TAG_BYTES)

    def encode(self, data: Buffer, spec: Spec) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._own().encrypt(nonce, data, self._bound(spec))  # type: ignore[no-any-return]

    def decode(self, data: Buffer, spec: Spec) -> bytes:
        """Raises `CodecError` for another key, another place or changed bytes; nothing else is revealed."""
        from cryptography.exceptions import InvalidTag

        view = memoryview(data)
        if view.nbytes < NONCE_BYTES + TAG_BYTES:
            raise CodecError("sealed bytes are shorter than nonce and tag")
        try:
            return self._own().decrypt(view[:NONCE_BYTES], view[NONCE_BYTES:], self._bound(spec))  # type: ignore[no-any-return]
        except InvalidTag as error:
            raise CodecError("sealed bytes do not open: other key, other block, or changed") from error

    def error_bound(self, data: Buffer, spec: Spec) -> float:
        """Exact."""
        return 0.0

    def _bound(self, spec: Spec) -> bytes:
        assert isinstance(spec, BytesSpec)
        return b"%b%d" % (self._context, spec.max_bytes)

    def _own(self) -> Any:
        if self.key_id not in _ciphers:
            raise CodecError(f"the key {self.key_id} was not given to this process; make an AESGCM(key) first")
        return _ciphers[self.key_id]


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers import aead
    except ImportError as error:
        raise CodecError("the codec aesgcm needs cryptography: pip install 'mmcache[crypto]'") from error
    try:
        return aead.AESGCM(key)
    except ValueError as error:
        raise CodecError("an AES key has 16, 24 or 32 bytes") from error
