"""Scopes: which tenant, namespace and signature a key belongs to, and the gate that every stored frame passes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from blake3 import blake3

from mmcache.codecs.pipeline import Chain, CodecSetting, choose, sealed
from mmcache.forks import Lock
from mmcache.keys.realm import RealmKeys
from mmcache.model.errors import InvalidInputError
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.model.signature import Signature

CAPACITY = 65_536
"""Scopes remembered (about 1 KB each); a key of an older one must be made again before it is stored under."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One tenant's namespace under one signature. Nothing is shared between two scopes."""

    digest: bytes
    salt: bytes
    signature: Signature
    tenant: str
    namespace: str
    chain: Chain
    """How its arrays are encoded at rest; a lossy chain's label is part of the signature."""

    def content_id(self, key: Key) -> bytes:
        """The input of `key` whatever the signature, within this realm: names the miss reason `signature`."""
        return blake3(key.digest + key.region, key=self.salt).digest(length=16)


class Scopes:
    """Makes scopes and remembers them, so that a key is enough to store under it."""

    def __init__(self, realms: RealmKeys, codec: CodecSetting) -> None:
        self._realms = realms
        self._codec = codec
        self._lock = Lock()
        self._by_parts: dict[tuple[Signature, str, str, CodecSetting | None], Scope] = {}
        self._by_digest: dict[bytes, Scope] = {}
        self._signatures: dict[bytes, Signature] = {}

    def chain(self, modality: str) -> Chain:
        """How blocks of `modality` are encoded at rest, where nothing else is asked for."""
        return choose(modality, self._codec)

    def of(self, signature: Signature, tenant: str, namespace: str, *, codec: str | None = None) -> Scope:
        """The scope of these parts; `signature.modality` chooses the chain, or `codec` names another one, which
        encrypts exactly where the cache's does."""
        for name, value in (("tenant", tenant), ("namespace", namespace)):
            if not isinstance(value, str) or not value:
                raise InvalidInputError(f"{name} is a string that is not empty, not {value!r}")
        parts = (signature, tenant, namespace, codec)
        scope = self._by_parts.get(parts)
        if scope is None:
            chain = choose(signature.modality, self._codec if codec is None else codec)
            signature = replace(signature, storage=chain.lossy_label)
            salt = self._realms.salt(tenant, namespace)
            scope = Scope(self._realms.scope(salt, signature), salt, signature, tenant, namespace, chain)
            with self._lock:
                self._by_parts[parts] = scope
                self._by_digest[scope.digest] = scope
                self._signatures[scope.signature.digest] = scope.signature
                if len(self._by_parts) > CAPACITY:
                    oldest = self._by_parts.pop(next(iter(self._by_parts)))
                    self._by_digest.pop(oldest.digest, None)
                if len(self._signatures) > CAPACITY:
                    self._signatures.pop(next(iter(self._signatures)))
        return scope

    def find(self, key: Key) -> Scope | None:
        """The scope that `key` was made in, if this cache made it."""
        return self._by_digest.get(key.scope)

    def signature(self, digest: bytes) -> Signature | None:
        """The one of that digest, if this cache made a scope of it."""
        return self._signatures.get(digest)

    @staticmethod
    def check(key: object) -> None:
        """Raises `InvalidInputError` for what is no key."""
        if not isinstance(key, Key):
            raise InvalidInputError(f"a key is made with cache.key(…), not from {type(key).__name__} {key!r:.60}")

    def require(self, key: Key) -> Scope:
        """Like `find`; raises `InvalidInputError` for a foreign key, or what is no key."""
        self.check(key)
        scope = self.find(key)
        if scope is None:
            raise InvalidInputError(f"{key!r} was not made by this cache; make it with cache.key(…)")
        return scope

    def gate(self, key: Key, frame: Frame) -> bool:
        """Whether `frame` may answer `key`: same key, and its declared realm and signature give the key's scope.

        Runs on every read from a tier below memory; nothing of the payload is decoded before it.
        """
        header = frame.header
        if header.key != key:
            return False
        scope = self.find(key)
        if scope is not None:
            declared = header.signature, header.tenant, header.namespace
            meant = scope.signature.digest, scope.tenant, scope.namespace
            return declared == meant and (not scope.chain.seals or sealed(header))
        salt = self._realms.salt(header.tenant, header.namespace)
        return self._realms.scope_of(salt, header.signature) == key.scope
