"""Documents as JSON text and back, exactly."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.documents import Document

from mmcache.integrations.framework.results import UnstorableError


def documents_text(found: list[Document]) -> str:
    """Raises `UnstorableError` for documents that would come back as something else."""
    try:
        text = json.dumps([_plain(one) for one in found])
    except (TypeError, ValueError) as error:
        raise UnstorableError(f"a document is no JSON: {error}") from error
    if documents_of(text) != list(found):
        raise UnstorableError("a document does not come back from JSON as it was")
    return text


def documents_of(text: str) -> list[Document]:
    """The documents again."""
    return [Document(page_content=words, metadata=metadata, id=name) for words, metadata, name in json.loads(text)]


def _plain(one: Document) -> list[Any]:
    if type(one) is not Document:
        raise UnstorableError(f"a {type(one).__name__} is not kept")
    return [one.page_content, one.metadata, one.id]
