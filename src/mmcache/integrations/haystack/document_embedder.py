"""`CachedDocumentEmbedder`: only documents that were never seen reach the embedder."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from haystack import component, default_from_dict
from haystack.core.serialization import component_to_dict

from mmcache.cache import Cache
from mmcache.integrations.framework.ways import by
from mmcache.integrations.haystack.config import CacheConfig
from mmcache.integrations.haystack.door import TENANT, Door, NotStored, aside, digest_key, off_loop
from mmcache.integrations.haystack.freezing import unused
from mmcache.integrations.haystack.pictures import png
from mmcache.integrations.haystack.reading import (
    Reading,
    bare,
    frozen_result,
    handed_on,
    is_documents,
    key_part,
    thawed_result,
)
from mmcache.integrations.haystack.signing import Signed
from mmcache.keys.arguments import canonical_arguments
from mmcache.keys.content import Content, identify
from mmcache.model.errors import InvalidInputError, MMCacheError, SettingsError
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.scopes import Scope


@component
class CachedDocumentEmbedder(Door):
    """Has the inputs and outputs of the embedder that it wraps: of texts, with `meta_fields_to_embed`, or of pictures,
    with `file_path_meta_field` (a picture counts by its file's bytes, not by its path).

    Arguments as for `CachedTextEmbedder`. `meta["usage"]` is what the embedder used for the misses;
    `meta["mmcache"]` counts both. A document that could not be embedded is handed on as the embedder left it.
    pictures: `bytes`, or `pixels`: the same picture in another file, saved anew without loss, is embedded once; the
    embedder is then given the picture upright, as a PNG, so that nothing that the key does not see can count.
    """

    def __init__(
        self,
        embedder: Any,
        cache: CacheConfig | Cache,
        signature: str | None = None,
        tenant: str | None = None,
        per_tenant: bool = False,
        ttl: float | None = None,
        pictures: Literal["bytes", "pixels"] = "bytes",
    ) -> None:
        self._set_up([embedder], cache, tenant, per_tenant, ttl)
        if pictures not in ("bytes", "pixels"):
            raise SettingsError(f'pictures is "bytes" or "pixels", not {pictures!r}')
        self.embedder, self.signature, self.pictures = embedder, signature, pictures
        self._signed = Signed(embedder, signature, modality="document")
        self._take_sockets(embedder)

    def to_dict(self) -> dict[str, Any]:
        """For pipeline files. Raises `SerializationError` for a `Cache` that is no `CacheConfig`."""
        return self._to_dict(
            embedder=component_to_dict(self.embedder, "embedder"), signature=self.signature, ttl=self.ttl,
            pictures=self.pictures,
        )  # fmt: skip

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CachedDocumentEmbedder:
        """Opens nothing: `warm_up` does."""
        made: CachedDocumentEmbedder = default_from_dict(cls, data)
        return made

    def run(self, **inputs: Any) -> dict[str, Any]:
        """See the wrapped component. What it raises is raised; a failure of the cache is not."""
        self.warm_up()
        return self._flow(inputs, self.embedder.run)

    async def run_async(self, **inputs: Any) -> dict[str, Any]:
        """The async twin: the wrapped component's `run_async` where it has one, else its `run`, in a thread."""
        await self.warm_up_async()
        return await off_loop(partial(self._flow, inputs), self.embedder)

    def _flow(self, inputs: dict[str, Any], run: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        tenant, documents = inputs.pop(TENANT, None), inputs.get("documents")
        cache = self._open()
        if cache is None or not is_documents(documents) or not documents:
            return run(**inputs)
        try:
            scope = self._signed_scope(cache, self._signed, tenant)
            others = {name: value for name, value in self._given(inputs).items() if name != "documents"}
            rest = canonical_arguments((), others)
        except MMCacheError as error:
            return aside(cache, error, lambda: run(**inputs))
        reading = Reading.of(self._signed.parameters)
        batch = Batch(cache, scope, reading, partial(_run_others, run, inputs), rest)
        batch.pixels = self.pictures == "pixels"
        try:
            made = batch.embed(documents, self.ttl)
        except _OddError:
            return run(**inputs)
        return {"documents": made} | batch.said()


def _run_others(run: Callable[..., dict[str, Any]], inputs: dict[str, Any], documents: list[Any]) -> dict[str, Any]:
    return run(**(inputs | {"documents": documents}))


class _OddError(Exception):
    """The embedder gave other documents than it was given, so nobody can tell which embedding is whose."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One document, identified."""

    key: Key
    scope: Scope
    part: bytes
    document: Any
    seen: Content | None = None
    """Its picture, where that counts by its pixels."""


class Batch:
    """One run over many documents."""

    def __init__(
        self, cache: Cache, scope: Scope, reading: Reading, run: Callable[[list[Any]], dict[str, Any]], rest: bytes
    ) -> None:
        self._cache, self._scope, self._reading, self._run, self._rest = cache, scope, reading, run, rest
        self._calls: list[dict[str, Any]] = []
        self._made: dict[Key, tuple[Any, Any]] = {}
        """What was computed here: the document that was given, and the value."""
        self._unused: dict[str, Any] | None = None
        self._documents = self._sent = 0
        self.pixels = False
        """Whether pictures count by their pixels."""

    def embed(self, documents: list[Any], ttl: float | None) -> list[Any]:
        """The documents with their embeddings, in order. Raises what the embedder raises, and `_OddError`."""
        self._documents = len(documents)
        wanted = [self._identified(document) for document in documents]
        known = [one for one in wanted if one is not None]
        values: dict[Key, Any] = {}
        try:
            with by("haystack"):
                found = self._cache.answers.answer_many(known, self._compute, ttl=ttl)
            values = dict(zip([one.key for one in known], found, strict=True))
        except MMCacheError as error:
            self._cache.events.emit(Failed("haystack", f"stepping aside: {error}"))
            values = {key: value for key, (_, value) in self._made.items()}
        made = [None if one is None else self._handed(one, values.get(one.key)) for one in wanted]
        missing = [place for place, document in enumerate(made) if document is None]
        for place, document in zip(missing, self._embedded([documents[place] for place in missing]), strict=True):
            made[place] = handed_on(documents[place], document)
        return made

    def _identified(self, document: Any) -> Wanted | None:
        try:
            seen = self._see(document)
            part = key_part(self._reading, document, self._rest, seen)
        except MMCacheError as error:
            self._cache.events.emit(Failed("haystack", f"a document is not looked up: {error}"))
            return None
        return Wanted(digest_key(self._scope, "haystack document", part), self._scope, part, document, seen)

    def _see(self, document: Any) -> Content | None:
        """None where it counts by its bytes, also since we cannot read it."""
        path = self._reading.picture(document) if self.pixels else None
        try:
            return None if path is None else identify(path, "image", salt=self._scope.salt, memo=self._cache.memo)
        except InvalidInputError:
            return None

    def _compute(self, missing: Sequence[Wanted]) -> list[Any]:
        field = self._reading.file_field
        with tempfile.TemporaryDirectory(prefix="mmcache-") if field and self.pixels else nullcontext("") as folder:
            shown = [_shown(one, field, Path(folder) / f"{place}.png") for place, one in enumerate(missing)]
            results = self._embedded(shown)
        results = [_named(result, one, field) for result, one in zip(results, missing, strict=True)]
        said = self._calls[-1].get("meta")
        meta = unused(said) if isinstance(said, dict) else None
        values = []
        for one, result in zip(missing, results, strict=True):
            value = frozen_result(one.document, result, meta)
            if field is not None and one.seen is None and not self._unchanged(one):
                value = NotStored(result)
            values.append(value)
            self._made[one.key] = one.document, value
        return values

    def _unchanged(self, one: Wanted) -> bool:
        """A file may have been written to between its key and its embedding."""
        again = self._identified(one.document)
        return again is not None and again.part == one.part

    def _embedded(self, documents: list[Any]) -> list[Any]:
        """What the embedder makes of them, in order. Embedders tell documents apart by id: no id twice in a call."""
        made: list[Any] = [None] * len(documents)
        for places in _rounds([document.id for document in documents]):
            outputs = self._run([bare(documents[place]) for place in places])
            results: Any = outputs.get("documents")
            if not is_documents(results) or [one.id for one in results] != [documents[place].id for place in places]:
                raise _OddError
            self._sent += len(places)
            self._calls.append({name: value for name, value in outputs.items() if name != "documents"})
            for place, result in zip(places, results, strict=True):
                made[place] = result
        return made

    def _handed(self, one: Wanted, value: Any) -> Any:
        """None where there is nothing for exactly this document: what could not be stored is another's."""
        if isinstance(value, NotStored):
            given, mine = self._made.get(one.key, (None, None))
            return handed_on(given, value.value) if given is one.document and mine is value else None
        if value is None:
            return None
        self._unused = value["meta"]
        return thawed_result(one.document, value)

    def said(self) -> dict[str, Any]:
        """The other outputs: what the calls said, their usage added up; where there was none, nothing was used."""
        whole: dict[str, Any] = {}
        for call in self._calls:
            whole = whole | {name: _added(whole.get(name), value) for name, value in call.items()}
        if not self._calls and self._unused is not None:
            whole = {"meta": self._unused}
        if isinstance(meta := whole.get("meta"), dict):
            whole["meta"] = meta | {"mmcache": {"hits": self._documents - self._sent, "misses": self._sent}}
        return whole


def _shown(one: Wanted, field: str | None, file: Path) -> Any:
    """What the embedder is given: where the picture counts by its pixels, exactly these."""
    if one.seen is None or field is None:
        return one.document
    file.write_bytes(png(one.seen.canonical()))
    return replace(one.document, meta={**one.document.meta, field: str(file)})


def _named(result: Any, one: Wanted, field: str | None) -> Any:
    """The result, of the file that the caller named."""
    if one.seen is None or field is None:
        return result
    return replace(result, meta={**result.meta, field: one.document.meta[field]})


def _rounds(ids: list[str]) -> list[list[int]]:
    """Places of `ids`, in groups in which none stands twice."""
    groups: list[dict[str, int]] = []
    for place, one in enumerate(ids):
        group = next((group for group in groups if one not in group), None)
        if group is None:
            groups.append(group := {})
        group[one] = place
    return [list(group.values()) for group in groups]


def _added(before: Any, value: Any) -> Any:
    """`meta` of two calls: numbers of `usage` are added, else the first stands."""
    if not isinstance(before, dict) or not isinstance(value, dict):
        return value if before is None else before
    usage, more = before.get("usage"), value.get("usage")
    merged = value | before
    if isinstance(usage, dict) and isinstance(more, dict):
        merged["usage"] = more | usage
        for name in usage.keys() & more.keys():
            if type(usage[name]) in (int, float) and type(more[name]) in (int, float):
                merged["usage"][name] = usage[name] + more[name]
    return merged
