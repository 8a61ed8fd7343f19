"""In which state are these datasets? Asked of RAGFlow itself, with the caller's key: so a hit is authorised, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mmcache.forks import Lock
from mmcache.model.errors import RetrievalError

_DATASET = (
    "id", "tenant_id", "update_time", "document_count", "chunk_count", "token_num", "embedding_model", "status",
    "similarity_threshold", "vector_similarity_weight", "pagerank", "chunk_method", "parser_config",
)  # fmt: skip
"""What of a dataset changes what is found in it."""
_DOCUMENT = ("id", "update_time", "chunk_count", "token_count", "run", "status")


class Client(Protocol):
    """What is used of `ragflow_sdk.RAGFlow`. Its `DataSet` drops `update_time`, so the answers are read as they are."""

    def get(self, path: str, params: dict[str, Any] | None = None) -> Any: ...


@dataclass(frozen=True, slots=True)
class State:
    """Of datasets, in the order of their ids."""

    parts: tuple[Any, ...]
    newest: float
    """Seconds since 1970 of the last change, by RAGFlow's clock."""


class States:
    """Asks for them; each answer is believed for `seconds`."""

    def __init__(self, client: Client, seconds: float, clock: Callable[[], float]) -> None:
        self._client, self._seconds, self._clock = client, seconds, clock
        self._known: dict[str, tuple[float, State]] = {}
        self._lock = Lock()

    def of(self, ids: Sequence[str]) -> State:
        """Raises `RetrievalError` where RAGFlow does not say, also where the caller may not see a dataset."""
        states = [self._one(name) for name in ids]
        return State(tuple(state.parts for state in states), max((state.newest for state in states), default=0.0))

    def _one(self, name: str) -> State:
        now = self._clock()
        with self._lock:
            asked, state = self._known.get(name, (0.0, None))
        if state is not None and now - asked < self._seconds:
            return state
        state = self._ask(name)
        with self._lock:
            self._known[name] = now, state
        return state

    def _ask(self, name: str) -> State:
        dataset = _data(self._client, "/datasets", {"id": name, "page": 1, "page_size": 1})
        if not isinstance(dataset, list) or len(dataset) != 1 or dataset[0].get("id") != name:
            raise RetrievalError("store", f"RAGFlow does not know the dataset {name!r}, or this key may not see it")
        newest = {"page": 1, "page_size": 1, "orderby": "update_time", "desc": "true"}
        documents = _data(self._client, f"/datasets/{name}/documents", newest)
        rows = documents.get("docs") if isinstance(documents, dict) else None
        if not isinstance(rows, list):
            raise RetrievalError("store", "RAGFlow lists documents in a form that is unknown here")
        found, rows = dataset[0], rows[:1]
        parts = [_of(found, _DATASET), documents.get("total"), *[_of(row, _DOCUMENT) for row in rows]]
        times = [row.get("update_time") for row in (found, *rows)]
        if not all(isinstance(time, int | float) for time in times):
            raise RetrievalError("store", "RAGFlow does not say when a dataset was updated")
        return State(tuple(parts), max(times) / 1e3)


def _of(row: dict[str, Any], names: Sequence[str]) -> list[Any]:
    return [row.get(name) for name in names]


def _data(client: Client, path: str, params: dict[str, Any]) -> Any:
    try:
        answer = client.get(path, params).json()
    except Exception as error:  # its HTTP client raises what it likes
        raise RetrievalError("store", f"RAGFlow did not answer ({type(error).__name__})") from error
    if not isinstance(answer, dict) or answer.get("code") != 0:
        told = answer.get("message") if isinstance(answer, dict) else None
        raise RetrievalError("store", f"RAGFlow refuses to tell the state of a dataset: {str(told)[:200]}")
    return answer.get("data")
