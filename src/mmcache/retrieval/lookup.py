"""`Retrieval`: the flow of a lookup, hop by hop.

keys      picture and words → their content keys → the joint key → the cache: a hit asks neither model nor store
near      else, where allowed: both embeddings (cached) → a remembered query, each modality by its own gate
store     else: one search at a time a key, stored under the joint key and the corpus's version, and remembered
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache as once
from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3

from mmcache.keys.arguments import canonical_arguments
from mmcache.keys.content import ContentOptions, encoded_bytes
from mmcache.keys.framing import framed
from mmcache.keys.joint import Alignment, joint_digest
from mmcache.keys.signing.functions import function_identity
from mmcache.model.errors import InvalidInputError, MMCacheError, RetrievalError, SettingsError
from mmcache.model.event import Failed, MissReason
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.retrieval.asked import Asked
from mmcache.retrieval.checks import check_encoders, check_settings
from mmcache.retrieval.locator import HopName, Located, Locator, Trace
from mmcache.retrieval.observed import Observed, RetrievalReport, as_is
from mmcache.retrieval.pages import PAGE_FORMAT, pages, queries
from mmcache.retrieval.queries import Match, Queries, Query, Strategy
from mmcache.retrieval.tolerance import Observation, Tolerance

if TYPE_CHECKING:
    from mmcache.cache import Cache
    from mmcache.encoder import Encoder
    from mmcache.lookup import Lookup

Search = Callable[..., Any]
"""`search(picture_vector, text_vector, k, **arguments)`: float32 [d] or None each; what it returns is stored."""
Documents = Callable[[Any], Iterable[Hashable]]

_MISSING = object()
_LEAST_OBSERVED = 0.6
"""Of aligned cosines: farther remembered queries teach nothing about tolerances."""


class Retrieval:
    """A cache in front of a vector store that is asked with a picture, words, or both.

    >>> retrieve = Retrieval(cache, picture=encode_picture, text=encode_text, search=store, corpus="manual 3")
    >>> retrieve("photo.png", "which dialog is this?", k=10)

    picture, text: encoders made by `cache.wrap`, that give one vector each.
    search: asks the store, see `Search`; its results must be storable (ids, arrays, dicts…).
    corpus: name and version of what is in the store, or a function that tells them. With another version nothing old
    is served; two stores of one name and version would share results.
    near: how far pictures and words may be from those of a remembered query to be answered with *its* results; None,
    the default, serves exact repetitions only. `Tolerance.learned(retrieve.observations())` finds one.
    strategy: how a near query is sought; see `Queries.find`.
    check_share: share of near hits for which the store is asked as well, compared and handed out; see `report`.
    observe: compare the results of near queries that are not allowed, whenever the store was asked anyway.
    documents: names of the documents in a result, best first; by default the result is such a list itself.
    remember: queries whose embeddings are kept (2 × d × 4 bytes each), for near hits and for `refresh`.
    alignment: frozen statistics of both embeddings, e.g. of the corpus; by default of early queries, 256 at least.
    locator: records every lookup; None costs nothing. ttl, tenant, namespace: as for the cache.
    Raises `SettingsError`.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        picture: Encoder,
        text: Encoder,
        search: Search,
        corpus: str | Callable[[], str],
        near: Tolerance | None = None,
        strategy: Strategy = "joint",
        check_share: float = 0.02,
        observe: bool = False,
        documents: Documents = as_is,
        remember: int = 10_000,
        alignment: Alignment | None = None,
        locator: Locator | None = None,
        ttl: float | None = None,
        tenant: str | None = None,
        namespace: str | None = None,
    ) -> None:
        check_encoders(picture=picture, text=text)
        check_settings(near, strategy, check_share, remember, observe)
        self._cache, self._search, self._corpus = cache, search, corpus
        realm = {"tenant": tenant, "namespace": namespace}
        changes = {name: value for name, value in realm.items() if value is not None}
        self._encoders = picture.options(**changes), text.options(**changes)
        self._realm = cache.tenant if tenant is None else tenant, cache.namespace if namespace is None else namespace
        self._near, self._strategy, self._check_share, self._observe = near, strategy, check_share, observe
        self._documents, self._locator, self._ttl = documents, locator, ttl
        self._remember = remember
        self._queries = Queries(remember, alignment) if remember else None
        self._observed = Observed()
        self._present: tuple[str, tuple[bytes, Key]] | None = None
        self._signature = Signature(function=function_identity(search), modality="retrieval")
        self._salt = cache.scopes.of(self._signature, *self._realm).salt
        self._current()
        self._restore()

    # What results belong to -----------------------------------------------------------------------------------------

    @property
    def corpus_key(self) -> Key:
        """What every result of the present corpus is linked to: `cache.invalidate(retrieve.corpus_key)` drops them."""
        return self._current()[1]

    def _current(self) -> tuple[bytes, Key]:
        """The scope of results under the present corpus, and the corpus's key."""
        version = self._tell() if callable(self._corpus) else self._corpus
        if not isinstance(version, str) or not version:
            raise SettingsError(f"corpus names the version of what is in the store, it cannot be {version!r}")
        present = self._present
        if present is None or present[0] != version:
            scope = self._cache.scopes.of(replace(self._signature, model_version=version), *self._realm).digest
            self._present = version, (scope, Key(scope, bytes(16)))
            if present is not None:
                self._cache.invalidate(present[1][1])  # frees their room; by their keys alone they are out of reach
            return self._present[1]
        return present[1]

    def _tell(self) -> str:
        assert callable(self._corpus)
        try:
            return self._corpus()
        except MMCacheError:
            raise
        except Exception as error:  # the store is a plug-in: whatever it raises, it is this hop's
            raise RetrievalError("store", f"the corpus's version cannot be told ({error})") from error

    def changed(self, corpus: str) -> None:
        """The store now holds another version of the corpus. Raises `SettingsError` where a function tells it."""
        if callable(self._corpus):
            raise SettingsError("corpus is a function: the version that it tells is asked for at every lookup")
        self._corpus = corpus
        self._current()

    def refresh(self, limit: int | None = None) -> int:
        """Ask the store again for remembered queries, those asked most often first; how many were asked.

        After a change of the corpus this fills the cache before callers do: no model runs, embeddings are at hand.
        Where it changes again meanwhile, what follows is asked and kept for that version. Raises `RetrievalError`.
        """
        asked = 0
        for query in () if self._queries is None else self._queries.hottest(limit):
            present = self._current()
            key = Key(present[0], query.digest)

            def search(query: Query = query, key: Key = key, present: tuple[bytes, Key] = present) -> Any:
                nonlocal asked
                asked += 1
                return self._ask_for(query, key, present)

            with suppress(_MovedOnError):
                self._cache.get_or_compute(key, search, ttl=self._ttl)
        return asked

    def save(self) -> int:
        """Keep the remembered queries in the cache, for the next process on its folder; how many.

        A `Retrieval` with the same models and search function takes them up when it is made. Results and embeddings
        need no saving: they are blocks as any other.
        """
        if self._queries is None:
            return 0
        name, kept = self._pages(), list(pages(self._queries.hottest()))
        # Where the pages end. First: what is put over something older may go with an invalidation that comes after it.
        self._cache.invalidate(name(len(kept)))
        means = [np.empty(0, np.float32) if mean is None else mean for mean in self._queries.means]
        stored = 0
        for number, page in enumerate(kept):
            if not self._cache.put(name(number), page | {"means": means}):
                break  # refused: too large, or the cache is not on; a reader ends at the first that is not there
            stored += len(page["names"])
        return stored

    def _restore(self) -> None:
        name, number = self._pages(), 0
        while self._queries is not None and len(self._queries) < self._remember:
            page = self._cache.get(name(number), None)
            if page is None:
                break
            try:
                self._queries.freeze([mean if len(mean) else None for mean in page["means"]])
                for query in queries(page):
                    self._queries.add(query)
            except InvalidInputError as error:  # models of one signature that are not the same: what is lost is a miss
                self._cache.events.emit(Failed("retrieval", f"saved queries were not taken up: {error}", name(number)))
                break
            number += 1

    def _pages(self) -> Callable[[int], Key]:
        """The key of each page: of these models, since embeddings of others cannot be compared."""
        picture, text = self._encoders
        models = picture.key(np.zeros((1, 1, 3), np.uint8)).scope + text.key("").scope
        scope = self._cache.scopes.of(self._signature, *self._realm).digest
        return lambda number: Key(
            scope, blake3(framed(PAGE_FORMAT, models, str(number).encode()), key=self._salt).digest(length=16)
        )

    # A lookup -------------------------------------------------------------------------------------------------------

    def __call__(self, picture: Any, words: str | None, k: int = 10, **arguments: Any) -> Any:
        """The store's results for `picture` and `words` (either may be None); `arguments` reach `search` and the key.

        Raises `RetrievalError` where a model or the store fails, naming the hop, `InvalidInputError` for bad input.
        """
        if self._locator is None:
            return self._look_up(picture, words, k, arguments, None)
        located = self._located(picture, words, k, arguments)
        if located.error is not None:
            raise located.error
        return located.value

    def locate(self, picture: Any, words: str | None, k: int = 10, **arguments: Any) -> Located:
        """The same lookup with a record of its hops. A hop that fails is in the record and does not raise."""
        return self._located(picture, words, k, arguments)

    async def a(self, picture: Any, words: str | None, k: int = 10, **arguments: Any) -> Any:
        """The async twin: runs in a thread."""
        import asyncio

        return await asyncio.to_thread(self, picture, words, k, **arguments)

    def _located(self, picture: Any, words: str | None, k: int, arguments: dict[str, Any]) -> Located:
        trace = Trace()
        try:
            located = trace.located(self._look_up(picture, words, k, arguments, trace))
        except RetrievalError as error:
            trace.died = HopName(error.hop)
            trace.mark(trace.died, "failed", str(error.__cause__))
            located = trace.located(None, error)
        if self._locator is not None:
            self._locator.add(located)
        return located

    def _look_up(self, picture: Any, words: str | None, k: int, arguments: dict[str, Any], trace: Trace | None) -> Any:
        if isinstance(picture, str | os.PathLike):  # read once: a file may change between key and model
            picture = encoded_bytes(picture, "image", ContentOptions())
        asked = Asked(self._encoders, (picture, words), trace, self._holds)
        rest = canonical_arguments((k, picture is None, words is None), arguments)
        digest = joint_digest(self._salt, *asked.keys, rest)
        present = self._current()
        key = Key(present[0], digest)

        @once
        def query() -> Query:
            own = deepcopy(arguments)  # lists and dicts in it stay the caller's, who may write to them afterwards
            if canonical_arguments((k, picture is None, words is None), own) != rest:
                raise InvalidInputError("the arguments were changed while looked up; do not write to an input")
            group = blake3(rest).digest(length=16)
            return Query(digest, group, k, own, *asked.keys, words or "", asked.vectors())

        answers = self._cache.answers
        look = answers.look_up([key], settled=True)[0]
        nearby = None
        if look.make is not None:
            if self._queries is not None:
                self._queries.touch(digest)
            if trace is not None:
                trace.mark(HopName.JOINT, "hit", look.tier)
        else:
            nearby = self._nearby(query, present[0])
            served = nearby is not None and nearby.allowed and random.random() >= self._check_share
            if trace is not None:
                self._say(trace, query(), asked.held, look, nearby, served)
            if nearby is not None and served:
                self._observed.near()
                return nearby.value
        searched = False

        def search() -> Any:
            nonlocal searched
            searched = True
            self._observed.searched()
            return self._ask_for(query(), key, present)

        try:
            value = answers.settle(key, look, search, ttl=self._ttl)
        except _MovedOnError as moved:  # between two corpora: handed out, not stored; to each caller his own
            value = moved.value if searched else deepcopy(moved.value)
        else:
            if searched:
                self._searched(key, query(), value, nearby)
        if trace is not None and (searched or look.make is None):
            trace.mark(HopName.STORE, "searched" if searched else "shared")
        return value

    def _holds(self, key: Key) -> bool:
        return any(tier.found for tier in self._cache.explain(key).tiers)

    def _nearby(self, ask: Callable[[], Query], scope: bytes) -> _Nearby | None:
        """The nearest remembered query whose results are still held, and whether it may be served."""
        if self._queries is None or self._cache.mode != "on" or (self._near is None and not self._observe):
            return None
        query = ask()
        match, allowed = None, self._near is not None
        if self._near is not None:
            match = self._queries.find(query, self._near, self._strategy)
        if match is None and self._observe:
            allowed = False
            match = self._queries.find(query, Tolerance(_LEAST_OBSERVED, _LEAST_OBSERVED), self._strategy)
        if match is None:
            return None
        value = self._cache.get(Key(scope, match.digest), _MISSING)
        return None if value is _MISSING else _Nearby(match, value, allowed)

    def _ask_for(self, query: Query, key: Key, present: tuple[bytes, Key]) -> Any:
        """The store's results, to be kept under `key`. Raises `_MovedOnError` where the corpus changed meanwhile."""
        self._cache.link(key, present[1])  # before it is asked: who invalidates the corpus meanwhile must reach it
        value = self._ask_store(query)
        if self._current() is not present:  # not `!=`: it may have changed twice, and be back
            raise _MovedOnError(value)
        return value

    def _ask_store(self, query: Query) -> Any:
        try:
            return self._search(*query.vectors, query.k, **deepcopy(dict(query.arguments)))
        except MMCacheError:
            raise
        except Exception as error:  # the store is a plug-in: whatever it raises, it is this hop's
            raise RetrievalError(
                "store", f"the vector store failed ({type(error).__name__}: {error}); the cause is chained"
            ) from error

    def _searched(self, key: Key, query: Query, value: Any, nearby: _Nearby | None) -> None:
        try:
            if self._queries is not None:
                self._queries.add(query)
            if nearby is not None:
                served, fresh = (list(self._documents(one)) for one in (nearby.value, value))
                self._observed.compared(served, fresh, nearby.match.picture, nearby.match.text, nearby.allowed)
        except Exception as error:  # noqa: BLE001 - `documents` is a plug-in; and this fails no lookup
            self._cache.events.emit(Failed("retrieval", f"a search could not be remembered or compared: {error}", key))

    # Sight ----------------------------------------------------------------------------------------------------------

    def observations(self) -> list[Observation]:
        """What was seen of near queries, the latest 10 000: whether their results would have been wrong."""
        return self._observed.observations()

    def report(self) -> RetrievalReport:
        """Counts since the start; how often checked near hits were wrong, with an interval."""
        return self._observed.report(0 if self._queries is None else len(self._queries))

    def _say(
        self, trace: Trace, query: Query, held: list[bool], look: Lookup, nearby: _Nearby | None, served: bool
    ) -> None:
        """Why there was no exact hit, and where the lookup died."""
        if nearby is not None and nearby.allowed:
            cosines = f"picture {nearby.match.picture:.2f}, words {nearby.match.text:.2f}"
            trace.mark(HopName.JOINT, "near" if served else "checked", cosines)
            return
        trace.mark(HopName.JOINT, "miss", look.reason.value)
        best = (-1.0, -1.0) if self._queries is None else self._queries.nearest(query)
        least = (1.0, 1.0) if self._near is None else (self._near.picture, self._near.text)
        known = [known or cosine >= limit for known, cosine, limit in zip(held, best, least, strict=True)]
        if look.reason is MissReason.SIGNATURE:  # this pair was searched for, in another corpus
            trace.died = HopName.STORE
        else:
            trace.died = next((name for name, there in zip(HopName, known, strict=False) if not there), HopName.JOINT)
        trace.mark(HopName.JOINT, "miss", f"{look.reason.value}; nearest picture {best[0]:.2f}, words {best[1]:.2f}")
        trace.resume()


@dataclass(frozen=True, slots=True)
class _Nearby:
    """A remembered query near the one that was asked, and its results."""

    match: Match
    value: Any
    allowed: bool


class _MovedOnError(Exception):
    """The corpus changed while the store was asked; carries the results past the cache."""

    def __init__(self, value: Any) -> None:
        super().__init__("the corpus changed while the store was asked")
        self.value = value
