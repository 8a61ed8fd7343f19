"""`index_state`: tells what is in an index, for `index_version`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from blake3 import blake3

from mmcache.model.errors import SettingsError


def index_state(index: Any, name: str = "index") -> Callable[[], str]:
    """A function that tells the state of an index whose document store knows every node: of which nodes, with which
    content, it consists. Inserting, deleting or updating a document changes it, in whatever process; so does nothing
    else. It reads all nodes' ids and hashes, about a millisecond a thousand.

    Raises `SettingsError` for an index that leaves its texts to the vector store: only that store knows what is in it,
    so say a version yourself.
    """
    if getattr(getattr(index, "vector_store", None), "stores_text", False) and not index.docstore.docs:
        raise SettingsError(
            "the texts of this index are in its vector store, whose changes are not seen here: pass index_version as a "
            "name and version, or a function of your own that tells when the store was written last"
        )

    def state() -> str:
        hashes = sorted(index.docstore.get_all_document_hashes().items())
        nodes = {name: held for name, held in index.index_struct.to_dict().items() if name != "index_id"}  # drawn anew
        text = json.dumps([hashes, nodes], sort_keys=True, default=str)
        return f"{name} {blake3(text.encode()).hexdigest()[:32]}"

    return state
