"""What media is, in 32 bytes: by decoded pixels where no decoder can disagree, by exact bytes everywhere else.

All digests are keyed with the tenant's salt: two tenants cannot compare theirs, and nobody learns from how long it took
whether another tenant has had that picture decoded before.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from blake3 import blake3

from mmcache.cache import Cache
from mmcache.keys.content import ContentOptions, identify
from mmcache.keys.framing import framed
from mmcache.keys.memo import LocalMemo
from mmcache.model.errors import InvalidInputError
from mmcache.model.signature import Signature
from mmcache.server.exchange import Proxy
from mmcache.server.media.plain import LARGEST_PIXELS, filled, settled

Realm = tuple[str, str]
"""See `Asked.realm`."""
SIGNATURE = Signature(model_version="1", function="mmcache.server.media")
INLINE_BYTES = 128 << 10
"""Up to this size things are hashed and decoded from base64 where they stand: a thread would cost more."""
PATIENCE_SECONDS = 5.0
"""For pixels. Whoever waits longer, because others' pictures are being decoded, is known by bytes."""
_OPTIONS = ContentOptions(max_pixels=LARGEST_PIXELS)
_THREADS = 2
"""Pictures decoded at a time: large ones hold up one another, and nothing else."""


class Digests:
    """Makes identities, for one proxy."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._decoding = ThreadPoolExecutor(_THREADS, "mmcache-media")
        self._seen = LocalMemo(16_384)
        self._texts = LocalMemo(16_384)

    def salt(self, realm: Realm) -> bytes:
        """32 bytes, the realm's."""
        return self._cache.scopes.of(SIGNATURE, *realm).salt

    def exact(self, kind: str, raw: bytes, realm: Realm) -> bytes:
        """32 bytes: of `kind` and exactly these bytes."""
        return blake3(framed("media bytes", kind.encode()), key=self.salt(realm)).update(raw).digest()

    def text(self, realm: Realm, body: str, *labels: str) -> bytes:
        """32 bytes: of a body as it is spelt, and all that its identity depends on besides."""
        head = framed("media text", *(label.encode() for label in labels))
        return blake3(head, key=self.salt(realm)).update(body.encode()).digest()

    def known(self, text: bytes) -> tuple[bytes, bytes, int] | None:
        """What was learned of a body in plain spelling: its identity, its exact digest, its decoded size."""
        held = self._texts.recall(text)
        return None if held is None else (held[:32], held[32:64], int.from_bytes(held[64:], "big"))

    def learn(self, text: bytes, identity: bytes, exact: bytes, size: int) -> None:
        """Keep it."""
        self._texts.remember(text, identity + exact + size.to_bytes(8, "big"))

    async def content(self, raw: bytes, exact: bytes, realm: Realm) -> tuple[bytes, bool]:
        """Of a picture: bytes that are equal for equal pixels, or just `exact`; and whether that is its last word."""
        known = self._seen.recall(exact)
        if known is None:
            if not settled(raw):
                return exact, True
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    loop = asyncio.get_running_loop()
                    known = await loop.run_in_executor(self._decoding, self._pixels, raw, exact, realm)
            except TimeoutError:
                return exact, False
            self._seen.remember(exact, known)
        return known, True

    def sealed(self, realm: Realm, *parts: bytes) -> bytes:
        """32 bytes over all `parts`."""
        return blake3(framed("media", *parts), key=self.salt(realm)).digest()

    async def close(self) -> None:
        """Let go of the threads."""
        self._decoding.shutdown(wait=False, cancel_futures=True)

    def _pixels(self, raw: bytes, exact: bytes, realm: Realm) -> bytes:
        if not filled(raw):
            return exact
        try:
            found = identify(raw, "image", salt=self.salt(realm), memo=self._cache.memo, options=_OPTIONS)
        except InvalidInputError:
            return exact  # the upstream says what is wrong with it
        return framed("pixels", found.decoder.encode(), found.digest)


def digests(proxy: Proxy) -> Digests:
    """Those of `proxy`, made at first use."""
    found = proxy.kept.get(__name__)
    if found is None:
        found = proxy.kept[__name__] = Digests(proxy.cache)
        proxy.closers.append(found.close)
    assert isinstance(found, Digests)
    return found
