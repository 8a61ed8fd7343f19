"""What components give, as values that the cache stores: no pickle, every float as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
from haystack import Document
from haystack.dataclasses import ByteStream, SparseEmbedding

from mmcache.integrations.haystack.door import NotStored

_VECTORS = "embedding", "sparse_embedding"


def frozen_vector(vector: Any) -> np.ndarray[Any, Any] | None:
    """A list of floats as an array that gives exactly them back: float32 where that loses nothing. None for what is
    no embedding: empty, not finite, or of something else than floats."""
    if not isinstance(vector, list) or not vector or {float} != set(map(type, vector)):
        return None
    exact = np.array(vector, np.float64)
    if not np.isfinite(exact).all():
        return None
    with np.errstate(over="ignore"):
        short = exact.astype(np.float32)
    return short if np.array_equal(short.astype(np.float64), exact) else exact


def frozen_sparse(sparse: Any) -> dict[str, Any] | None:
    """None for what is no sparse embedding."""
    if not isinstance(sparse, SparseEmbedding):
        return None
    values = frozen_vector(sparse.values)
    return None if values is None else {"indices": list(sparse.indices), "values": values}


def thawed_sparse(stored: dict[str, Any]) -> Any:
    """The other way round."""
    return SparseEmbedding(indices=list(stored["indices"]), values=stored["values"].tolist())


def frozen_embedding(outputs: dict[str, Any]) -> dict[str, Any] | NotStored:
    """Outputs of a text embedder."""
    rest = {name: value for name, value in outputs.items() if name not in _VECTORS}
    if "sparse_embedding" in outputs:
        sparse = frozen_sparse(outputs["sparse_embedding"])
        return NotStored(outputs) if sparse is None else {"sparse": sparse, "rest": rest}
    vector = frozen_vector(outputs.get("embedding"))
    return NotStored(outputs) if vector is None else {"vector": vector, "rest": rest}


def thawed_embedding(stored: dict[str, Any], hit: bool) -> dict[str, Any]:
    """The other way round; on a hit, what was used is nothing, and what was saved is said."""
    rest = dict(stored["rest"])
    if isinstance(meta := rest.get("meta"), dict):
        said: dict[str, Any] = {"hit": hit}
        if hit and "usage" in meta:
            said["saved_usage"] = meta["usage"]
        rest["meta"] = (unused(meta) if hit else dict(meta)) | {"mmcache": said}
    if "sparse" in stored:
        return {"sparse_embedding": thawed_sparse(stored["sparse"])} | rest
    return {"embedding": stored["vector"].tolist()} | rest


def unused(meta: dict[str, Any]) -> dict[str, Any]:
    """`meta` of a call that was not made: its usage is 0."""
    usage = meta.get("usage")
    return {**meta, "usage": _zero(usage)} if isinstance(usage, dict) else dict(meta)


def _zero(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _zero(part) for name, part in value.items()}
    return type(value)(0) if type(value) in (int, float) else value


def frozen_documents(outputs: dict[str, Any]) -> dict[str, Any] | NotStored:
    """Outputs of a retriever."""
    documents = outputs.get("documents")
    if not isinstance(documents, list):
        return NotStored(outputs)
    kept = [frozen_document(document) for document in documents]
    if None in kept:
        return NotStored(outputs)
    return {"documents": kept, "rest": {name: value for name, value in outputs.items() if name != "documents"}}


def thawed_documents(stored: dict[str, Any]) -> dict[str, Any]:
    """The other way round: documents of the caller's own."""
    return {"documents": [thawed_document(one) for one in stored["documents"]], **stored["rest"]}


def frozen_document(document: Any) -> dict[str, Any] | None:
    """None for what would not come back as it was."""
    if type(document) is not Document:
        return None
    kept: dict[str, Any] = {"id": document.id, "content": document.content, "meta": document.meta}
    kept["score"] = document.score
    if (blob := document.blob) is not None:
        kept["blob"] = {"data": bytes(blob.data), "meta": blob.meta, "mime_type": blob.mime_type}
    if document.embedding is not None:
        vector = frozen_vector(document.embedding)
        if vector is None:
            return None
        kept["embedding"] = vector
    if document.sparse_embedding is not None:
        sparse = frozen_sparse(document.sparse_embedding)
        if sparse is None:
            return None
        kept["sparse"] = sparse
    return kept


def thawed_document(stored: dict[str, Any]) -> Any:
    """The other way round."""
    blob = stored.get("blob")
    return Document(
        id=stored["id"],
        content=stored["content"],
        meta=stored["meta"],
        score=stored["score"],
        blob=None if blob is None else ByteStream(**blob),
        embedding=stored["embedding"].tolist() if "embedding" in stored else None,
        sparse_embedding=thawed_sparse(stored["sparse"]) if "sparse" in stored else None,
    )
