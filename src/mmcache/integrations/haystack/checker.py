"""`ContentChecker`: what was ingested before, by content. Haystack's own `CacheChecker` compares a field."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from blake3 import blake3
from haystack import Document, component, default_from_dict
from haystack.dataclasses import ByteStream

from mmcache.cache import Cache
from mmcache.fill import in_thread
from mmcache.integrations.haystack.config import CacheConfig
from mmcache.integrations.haystack.door import TENANT, Door
from mmcache.keys.content import identify
from mmcache.keys.framing import framed
from mmcache.model.errors import InvalidInputError, MMCacheError
from mmcache.model.event import Failed
from mmcache.model.signature import Signature

_SIGNATURE = Signature(function="mmcache.integrations.haystack.checker", model_version="1")


@component
class ContentChecker(Door):
    """Splits documents, byte streams and paths into what the store holds already and what it does not.

    A picture saved anew without loss, under another name or in another format, is the same: it counts by its pixels;
    sound by its samples; all else by its bytes. The content's name goes into `meta[cache_field]` of what is missed, and
    converters and splitters hand `meta` on to the documents that are written, so the store itself is asked: what was
    deleted there is missed again. Names are keyed: another folder (or secret), tenant or namespace gives other names.

    document_store: asked for documents whose `meta[cache_field]` is the content's name.
    Outputs: hits (documents of the store), misses (byte streams and documents, each content once), duplicates (items
    whose content stands among the misses already).
    """

    def __init__(
        self,
        document_store: Any,
        cache: CacheConfig | Cache,
        cache_field: str = "content_key",
        tenant: str | None = None,
        per_tenant: bool = False,
    ) -> None:
        self._set_up([], cache, tenant, per_tenant)
        self.document_store, self.cache_field = document_store, cache_field
        component.set_input_type(self, "items", list[Any])
        component.set_output_types(self, hits=list[Document], misses=list[Any], duplicates=list[Any])
        self._take_tenant()

    def to_dict(self) -> dict[str, Any]:
        """For pipeline files. Raises `SerializationError` for a `Cache` that is no `CacheConfig`."""
        return self._to_dict(document_store=self.document_store, cache_field=self.cache_field)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ContentChecker:
        """Opens nothing: `warm_up` does."""
        made: ContentChecker = default_from_dict(cls, data)
        return made

    def run(self, **inputs: Any) -> dict[str, Any]:
        """`items`: documents, byte streams, paths. What the store raises is raised."""
        named = self._named(inputs["items"], inputs.get(TENANT))
        found = {name: self.document_store.filter_documents(filters=self._filters(name)) for name in _names(named)}
        return self._split(named, found)

    async def run_async(self, **inputs: Any) -> dict[str, Any]:
        """The async twin: the store's own where it has one, else a thread."""
        named = await in_thread(partial(self._named, inputs["items"], inputs.get(TENANT)))
        ask = getattr(self.document_store, "filter_documents_async", None)
        found = {}
        for name in _names(named):
            if ask is None:
                found[name] = await in_thread(partial(self.document_store.filter_documents, self._filters(name)))
            else:
                found[name] = await ask(filters=self._filters(name))
        return self._split(named, found)

    def _filters(self, name: str) -> dict[str, Any]:
        return {"field": f"meta.{self.cache_field}", "operator": "==", "value": name}

    def _named(self, items: list[Any], tenant: Any) -> list[tuple[Any, str | None]]:
        """Items with the names of their contents; None where there is none, so that nobody knows whether it is held."""
        cache = self._open()
        if cache is None:
            return [(item, None) for item in items]
        try:
            salt = self._scope(cache, _SIGNATURE, tenant).salt
        except MMCacheError as error:
            cache.events.emit(Failed("haystack", f"stepping aside: {error}"))
            return [(item, None) for item in items]
        named: list[tuple[Any, str | None]] = []
        for item in items:
            item = _read(item)
            try:
                named.append((item, name_of(item, salt, cache)))
            except MMCacheError as error:
                cache.events.emit(Failed("haystack", f"an item is not looked up: {error}"))
                named.append((item, None))
        return named

    def _split(self, named: list[tuple[Any, str | None]], found: dict[str, list[Any]]) -> dict[str, Any]:
        hits: dict[str, list[Any]] = {}
        misses, duplicates, missed = [], [], set()
        for item, name in named:
            if name is None:
                misses.append(item)
            elif found[name]:
                hits[name] = found[name]
            elif name in missed:
                duplicates.append(item)
            else:
                missed.add(name)
                misses.append(self._marked(item, name))
        return {"hits": [one for some in hits.values() for one in some], "misses": misses, "duplicates": duplicates}

    def _marked(self, item: Any, name: str) -> Any:
        return replace(item, meta={**item.meta, self.cache_field: name})


def _names(named: list[tuple[Any, str | None]]) -> list[str]:
    return list(dict.fromkeys(name for _, name in named if name is not None))


def _read(item: Any) -> Any:
    """A path as a byte stream, read once: a file may change before it is converted."""
    if not isinstance(item, str | Path):
        return item
    return ByteStream.from_file_path(Path(item), meta={"file_path": str(item)}, guess_mime_type=True)


def name_of(item: Any, salt: bytes, cache: Cache) -> str:
    """64 hexadecimal digits at most, that name the content of a document or byte stream. Raises `InvalidInputError`."""
    if isinstance(item, Document):
        if item.blob is None and item.content is None:
            raise InvalidInputError("a document without content cannot be compared by it")
        text = b"" if item.content is None else item.content.encode("utf-8", "surrogatepass")
        if item.blob is None:
            return _hashed("text", text, salt)
        blob = name_of(item.blob, salt, cache)
        return blob if item.content is None else _hashed("both", framed("both", blob.encode(), text), salt)
    if not isinstance(item, ByteStream):
        raise InvalidInputError(f"items are documents, byte streams and paths, not a {type(item).__name__}")
    kind = (item.mime_type or "").partition("/")[0]
    if kind in ("image", "audio"):
        try:
            return f"{kind}-{identify(bytes(item.data), kind, salt=salt, memo=cache.memo).digest.hex()}"
        except InvalidInputError:  # animated, vector graphics, damaged…: its bytes tell
            pass
    return _hashed("bytes", bytes(item.data), salt)


def _hashed(kind: str, data: bytes, salt: bytes) -> str:
    return f"{kind}-{blake3(framed('haystack content', data), key=salt).hexdigest(length=16)}"
