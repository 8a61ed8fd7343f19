"""`JointRetrieval`: chunks for a picture and words, with a joint key, and a record of where a lookup died."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from mmcache.forks import Lock
from mmcache.integrations.ragflow.retrieval import CachedRetrieval, row_of
from mmcache.keys.arguments import canonical_arguments
from mmcache.keys.framing import framed
from mmcache.model.errors import InvalidInputError, MMCacheError, RetrievalError, SettingsError
from mmcache.model.event import Failed
from mmcache.retrieval import Located, Locator, Retrieval

if TYPE_CHECKING:
    from mmcache.encoder import Encoder


class JointRetrieval:
    """`find = JointRetrieval(retrieve, …)`, then `find("photo.png", "which dialog is this?", k=8)` gives rows.

    RAGFlow is asked in words, so `describe(vector)` says what is on a picture, from its embedding (the nearest of known
    labels, a caption model…); `version` names it. picture, text: encoders, as for `mmcache.retrieval.Retrieval`, and so
    are further options (`near`, `locator`, …). A repeated lookup asks no model and no search.
    Raises `SettingsError`.
    """

    def __init__(
        self,
        retrieve: CachedRetrieval,
        dataset_ids: list[str],
        *,
        picture: Encoder,
        text: Encoder,
        describe: Callable[[Any], str],
        version: str,
        locator: Locator | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(version, str) or not version:
            raise SettingsError("version names the version of describe; change it whenever it may say something else")
        self._retrieve, self._datasets, self._picture, self._describe = retrieve, list(dataset_ids), picture, describe
        self._version = version
        self.locator = Locator() if locator is None else locator
        self._options: dict[str, Any] = {"picture": picture, "text": text, **options}
        self._lock = Lock()
        self._made: Retrieval | None = None

    def _retrieval(self) -> Retrieval:
        """Made at the first lookup: it asks RAGFlow. Raises `InvalidInputError`, `SettingsError`."""
        with self._lock:
            if self._made is None:
                retrieve = self._retrieve
                self._made = Retrieval(
                    retrieve.cache, search=self._search, corpus=self._corpus, locator=self.locator, documents=_names,
                    ttl=retrieve.ttl, tenant=retrieve.tenant, **self._options,
                )  # fmt: skip
            return self._made

    def __call__(self, picture: Any, words: str | None, k: int = 8, **asked: Any) -> list[dict[str, Any]]:
        """Rows, best first; `asked` goes to `rag.retrieve`. What RAGFlow or a model raises is raised."""
        located = self.locate(picture, words, k, **asked)
        if located.error is not None:
            raise located.error.__cause__ or located.error
        rows: list[dict[str, Any]] = located.value
        return rows

    def locate(self, picture: Any, words: str | None, k: int = 8, **asked: Any) -> Located:
        """The same with a record of its hops; see `Located`. Where the cache fails, everything is asked."""
        try:
            return self._retrieval().locate(picture, words, k, question=words or "", **asked)
        except MMCacheError as error:
            self._retrieve.cache.events.emit(Failed("ragflow", f"stepping aside: {error}"))
            seen = None if picture is None else self._picture.options(bypass=True)(picture)
            return Located(self._search(seen, None, k, words or "", **asked), ())

    def _search(self, seen: Any, read: Any, k: int, question: str, **asked: Any) -> list[dict[str, Any]]:
        told = " ".join(filter(None, [question, "" if seen is None else self._describe(seen)]))
        found = self._retrieve.rag.retrieve(self._datasets, question=told, page_size=k, **asked)
        return [row_of(chunk) for chunk in found]

    def _corpus(self) -> str:
        retrieve = self._retrieve
        try:
            state, unsettled = retrieve.state(self._datasets)
        except RetrievalError as error:  # not the search's: that is still to be asked
            raise InvalidInputError(str(error)) from error
        if unsettled:
            raise InvalidInputError("the datasets changed just now, so what is found is not kept")
        version = canonical_arguments([self._version, self._datasets, str(retrieve.rag.api_url)])
        return blake3(framed("ragflow joint", version, state, retrieve.caller())).hexdigest(length=16)


def _names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in rows]
