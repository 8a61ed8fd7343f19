"""Media by address, as it is now: the origin is asked each time, and sends it again only where it changed.

What was fetched stays in the cache with its `ETag` (or `Last-Modified`), for one tenant. No lifetime that an origin
states is relied on: an answer must rest on what the address shows now, as it would if the upstream fetched it itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mmcache.model.errors import MMCacheError, ProxyError
from mmcache.model.key import Key
from mmcache.server.exchange import Asked, Proxy
from mmcache.server.media.data_urls import Decoded
from mmcache.server.media.fetch import Fetched, Fetcher, Validators
from mmcache.server.media.identity import SIGNATURE
from mmcache.server.media.plain import sniffed
from mmcache.server.media.shapes import Kind, UnknownPartError

KEPT_SECONDS = 7 * 86_400.0
_MIME = re.compile(r"[a-z0-9!#$&^_.+-]{1,100}/[a-z0-9!#$&^_.+-]{1,100}\Z")
_SNIFFED = {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "bmp": "image/bmp", "webp": "image/webp"}


async def current(url: str, kind: Kind, asked: Asked, proxy: Proxy) -> Decoded:
    """What is at `url` now. Raises `UnknownPartError` where the rules forbid asking, or nobody answers well."""
    rules = proxy.settings.fetch
    if not rules.allowed or kind not in ("image", "audio", "video"):
        raise UnknownPartError("remote-media")
    try:
        fetched = await _fetched(url, asked, proxy)
    except ProxyError as error:
        raise UnknownPartError("remote-media") from error
    mime = _mime(fetched, kind)
    if len(fetched.data) * 4 // 3 > asked.rules.largest_body_bytes:  # it goes on as base64
        raise UnknownPartError("remote-media")
    return Decoded(fetched.data, False, mime)


def fetcher(proxy: Proxy) -> Fetcher:
    """That of `proxy` under its present rules, made at first use."""
    found = proxy.kept.get(__name__)
    if not isinstance(found, Fetcher) or found.rules != proxy.settings.fetch:
        found = proxy.kept[__name__] = Fetcher(proxy.settings.fetch)
        proxy.closers.append(found.close)
    return found


async def _fetched(url: str, asked: Asked, proxy: Proxy) -> Fetched:
    fetching, wanted = fetcher(proxy), asked.directives
    if wanted.no_store:
        return _there(await fetching.get(url))
    key = await _key(url, asked, proxy)
    kept = None if key is None or wanted.no_cache else await _kept(key, proxy)
    if kept is not None and (found := await fetching.get(url, kept.validators)) is None:
        return kept
    if kept is None:
        found = await fetching.get(url)
    fetched = _there(found)
    if key is not None and fetched.validators is not None:
        await _keep(key, fetched, proxy)
    return fetched


def _there(found: Fetched | None) -> Fetched:
    if found is None:
        raise ProxyError("the origin says that nothing changed, and was not asked", code="remote-media")
    return found


async def _key(url: str, asked: Asked, proxy: Proxy) -> Key | None:
    try:
        return await proxy.cache.a.key(
            url, modality="text", signature=SIGNATURE, tenant=asked.tenant, namespace=asked.namespace
        )
    except MMCacheError:
        return None


async def _kept(key: Key, proxy: Proxy) -> Fetched | None:
    try:
        found = await proxy.cache.a.get(key)
    except MMCacheError:
        return None
    if not isinstance(found, Mapping):
        return None
    match found:
        case {"url": str(url), "etag": str(etag), "modified": str(modified), "mime": str(mime), "data": bytes(data)}:
            return Fetched(mime, data, Validators(url, etag, modified))
    return None


async def _keep(key: Key, fetched: Fetched, proxy: Proxy) -> None:
    assert fetched.validators is not None
    told = fetched.validators
    value = {"url": told.url, "etag": told.etag, "modified": told.modified, "mime": fetched.mime, "data": fetched.data}
    try:
        await proxy.cache.a.put(key, value, ttl=KEPT_SECONDS)
    except MMCacheError:
        return  # fetched again next time


def _mime(fetched: Fetched, kind: Kind) -> str:
    """What the upstream is told that it is. Raises `UnknownPartError` for what is not of `kind`."""
    mime = fetched.mime if _MIME.match(fetched.mime) else ""
    if kind == "image" and (looks := sniffed(fetched.data)):
        return _SNIFFED[looks]
    if not mime.startswith(f"{kind}/") or mime == "video/jpeg":  # which means something else in a data URL
        raise UnknownPartError("remote-media")
    return mime
