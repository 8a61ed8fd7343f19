"""What a document embedder reads of a document: the key is made of exactly that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from blake3 import blake3
from haystack import Document

from mmcache.integrations.haystack.door import NotStored
from mmcache.integrations.haystack.freezing import frozen_sparse, frozen_vector, thawed_sparse
from mmcache.keys.arguments import canonical_arguments
from mmcache.keys.content import Content, ContentOptions, encoded_bytes
from mmcache.keys.framing import framed
from mmcache.model.errors import InvalidInputError

_UNTOLD = object()
_PAGE = "page_number"
_SOURCE = "embedding_source"
"""The one entry of `meta` that embedders add, which says how the embedding was made."""


@dataclass(frozen=True)
class Reading:
    """Taken from the embedder's own parameters, by the names that Haystack's embedders have in common."""

    meta_fields: tuple[str, ...] | None = None
    """Entries of `meta` that are embedded with the content; None = unknown, so all of them."""
    file_field: str | None = None
    """The entry of `meta` that names a picture's file, relative to `root`."""
    root: str = ""

    @classmethod
    def of(cls, told: dict[str, Any] | None) -> Reading:
        """`told`: the init parameters; where they do not say, all of a document counts."""
        told = told or {}
        told_fields, file = told.get("meta_fields_to_embed", _UNTOLD), told.get("file_path_meta_field")
        fields: tuple[str, ...] | None = None
        if told_fields is None:
            fields = ()
        elif isinstance(told_fields, list | tuple) and all(isinstance(one, str) for one in told_fields):
            fields = tuple(told_fields)
        return cls(fields, file if isinstance(file, str) and file else None, str(told.get("root_path") or ""))

    def picture(self, document: Any) -> Path | None:
        """Of which file's pixels its embedding is; None for a page of a file, and where it names none."""
        name = None if self.file_field is None else document.meta.get(self.file_field)
        if not isinstance(name, str | Path) or not str(name) or document.meta.get(_PAGE) is not None:
            return None
        return Path(self.root) / name

    def bytes_of(self, document: Any, seen: Content | None = None) -> bytes:
        """All that the embedding may depend on. seen: its picture, where it counts by its pixels. Raises
        `InvalidInputError` for what has no canonical bytes."""
        meta: dict[str, Any] = document.meta
        blob = document.blob
        parts: dict[str, Any] = {"content": document.content}
        if blob is not None:
            parts["blob"] = [bytes(blob.data), blob.mime_type]
        if self.file_field is not None:
            parts["picture"] = self._file(meta.get(self.file_field)) if seen is None else [seen.digest, seen.decoder]
            parts["page"] = meta.get(_PAGE)
        elif self.meta_fields is None:
            parts["all"] = meta
        if self.meta_fields:
            parts["meta"] = [[name, meta[name]] for name in self.meta_fields if meta.get(name) is not None]
        return canonical_arguments((), parts)

    def _file(self, name: Any) -> bytes:
        if not isinstance(name, str | Path) or not str(name):
            raise InvalidInputError(f"a document has no meta[{self.file_field!r}] that names its picture")
        raw = encoded_bytes(Path(self.root) / name, "image", ContentOptions())
        return blake3(raw or b"").digest()


def bare(document: Any) -> Any:
    """What an embedder is given: an embedding of before could be taken for one that it made."""
    return replace(document, embedding=None, sparse_embedding=None)


def frozen_result(given: Any, made: Any, meta: dict[str, Any] | None) -> dict[str, Any] | NotStored:
    """What embedding the bare `given` made of it; `meta` is what the call said besides. What cannot be told apart from
    the document itself is handed through and not stored."""
    vector, sparse = frozen_vector(made.embedding), frozen_sparse(made.sparse_embedding)
    if (vector is None) != (made.embedding is None) or (sparse is None) != (made.sparse_embedding is None):
        return NotStored(made)
    try:
        added = {
            name: value for name, value in made.meta.items() if name not in given.meta or given.meta[name] != value
        }
        same = bare(replace(made, meta=given.meta)) == bare(given)
    except ValueError:  # arrays in `meta` cannot be compared
        return NotStored(made)
    removed = given.meta.keys() - made.meta.keys()
    if not same or removed or added.keys() - {_SOURCE} or (vector is None and sparse is None):
        return NotStored(made)
    return {"vector": vector, "sparse": sparse, "added": added, "meta": meta}


def handed_on(given: Any, made: Any) -> Any:
    """A result that is not stored: embeddings that were there before stay where none was made."""
    return replace(
        made,
        embedding=given.embedding if made.embedding is None else made.embedding,
        sparse_embedding=given.sparse_embedding if made.sparse_embedding is None else made.sparse_embedding,
    )


def thawed_result(given: Any, stored: dict[str, Any]) -> Any:
    """`given` with its embedding: a document of its own."""
    changes: dict[str, Any] = {"meta": given.meta | stored["added"]}
    if stored["vector"] is not None:
        changes["embedding"] = stored["vector"].tolist()
    if stored["sparse"] is not None:
        changes["sparse_embedding"] = thawed_sparse(stored["sparse"])
    return replace(given, **changes)


def is_documents(documents: Any) -> bool:
    """Whether this is what a document embedder takes."""
    return isinstance(documents, list) and all(type(one) is Document for one in documents)


def key_part(reading: Reading, document: Any, rest: bytes, seen: Content | None = None) -> bytes:
    """What a document's key is made of: what is read of it, and the other inputs of the run."""
    return framed("document", reading.bytes_of(document, seen), rest)
