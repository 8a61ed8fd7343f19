"""What changes while, or after, the store is asked: arguments, vectors, the corpus."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mmcache import Cache, InvalidInputError
from mmcache.keys.joint import Alignment, Statistics
from mmcache.model.errors import RetrievalError, SettingsError
from mmcache.model.event import Failed
from mmcache.retrieval import Retrieval

Floats = npt.NDArray[np.float32]


def read(text: str) -> npt.NDArray[np.float64]:
    return np.array([len(text), text.count(" "), 1.0])


def see(picture: Any) -> Floats:
    return np.asarray(picture, np.float32).reshape(-1)[:3]


def retrieval(cache: Cache, search: Any, **options: Any) -> Retrieval:
    encoders = cache.wrap(see, modality="image", signature="see-1"), cache.wrap(read, modality="text", signature="r-1")
    return Retrieval(cache, picture=encoders[0], text=encoders[1], search=search, **{"corpus": "1"} | options)


def test_a_filter_that_is_written_to_later_does_not_change_what_is_refreshed() -> None:
    def search(picture: Any, text: Any, k: int, only: dict[str, str]) -> list[str]:
        return [only["language"]]

    with Cache(memory="4MiB") as cache:
        retrieve, only = retrieval(cache, search), {"language": "en"}
        assert retrieve(None, "a", only=only) == ["en"]
        only["language"] = "de"
        assert retrieve(None, "a", only=only) == ["de"]
        retrieve.changed("2")
        assert retrieve.refresh() == 2
        assert retrieve(None, "a", only={"language": "en"}) == ["en"]
        assert retrieve(None, "a", only={"language": "de"}) == ["de"]


def test_a_search_may_write_to_its_arguments_but_not_to_the_vectors() -> None:
    def search(picture: Any, text: Floats, k: int, only: list[int], spoil: bool) -> list[int]:
        if spoil:
            text /= 2
        only.append(1)
        return [len(only)]

    with Cache(memory="4MiB") as cache:
        retrieve = retrieval(cache, search)
        assert retrieve(None, "a", only=[], spoil=False) == [1]
        retrieve.changed("2")
        assert retrieve.refresh() == 1
        assert retrieve(None, "a", only=[], spoil=False) == [1]
        with pytest.raises(RetrievalError, match="read-only"):
            retrieve(None, "b", only=[], spoil=True)


def test_arguments_that_are_written_to_during_a_lookup_are_refused() -> None:
    only = ["a"]

    def tell() -> str:
        only.append("b")  # asked after the key was made: here another thread may come
        return "1"

    with Cache(memory="4MiB") as cache:
        retrieve = retrieval(cache, lambda *_, **__: [1], corpus=tell)
        with pytest.raises(InvalidInputError, match="arguments were changed"):
            retrieve(None, "a", only=only)


def test_a_refresh_during_which_the_corpus_changes_keeps_nothing_for_the_wrong_one() -> None:
    store, moves = ["A"], [False]

    def search(picture: Any, text: Any, k: int) -> list[str]:
        if moves[0]:
            store[0] = "B"
        return [store[0]]

    with Cache(memory="4MiB") as cache:
        retrieve = retrieval(cache, search, corpus=lambda: store[0])
        assert [retrieve(None, words) for words in "xy"] == [["A"], ["A"]]
        store[0] = "C"
        retrieve(None, "z")
        store[0], moves[0] = "A", True
        assert retrieve.refresh() == 3  # the first falls between two corpora, the others are B's
        moves[0] = False
        assert [retrieve(None, words) for words in "xy"].count(["B"]) == 2
        store[0] = "A"
        assert [retrieve(None, words) for words in "xyz"] == [["A"]] * 3


def test_a_corpus_that_is_changed_and_changed_back_is_noticed() -> None:
    with Cache(memory="4MiB") as cache:
        searches: list[int] = []

        def search(*_: Any) -> list[int]:
            if not searches:
                retrieve.changed("2")
                retrieve.changed("1")
            searches.append(1)
            return [len(searches)]

        retrieve = retrieval(cache, search)
        assert retrieve(None, "a") == [1]
        assert retrieve(None, "a") == [2] == retrieve(None, "a")


def test_results_between_two_corpora_are_each_callers_own() -> None:
    version, asked, told = ["1"], threading.Event(), threading.Event()

    def search(*_: Any) -> list[dict[str, int]]:
        asked.set()
        told.wait(10)
        version[0] = "2"
        return [{"id": 1}]

    with Cache(memory="4MiB") as cache:
        retrieve, found = retrieval(cache, search, corpus=lambda: version[0]), list[Any]()
        leader = threading.Thread(target=lambda: found.append(retrieve(None, "a")))
        leader.start()
        assert asked.wait(10)
        follower = threading.Thread(target=lambda: found.append(retrieve(None, "a")))
        follower.start()
        told.set()
        leader.join()
        follower.join()
        assert found == [[{"id": 1}]] * 2
        assert found[0] is not found[1]
        assert retrieve.report().searched >= 1
        located = retrieve.locate(None, "b")
        assert located.hops[-1].name == "store"


@pytest.mark.parametrize("refreshed", [False, True])
def test_who_invalidates_the_corpus_meanwhile_reaches_the_search(refreshed: bool) -> None:
    drop, searches = [not refreshed], []

    with Cache(memory="4MiB") as cache:

        def search(*_: Any) -> list[int]:
            searches.append(1)
            if drop[0]:
                cache.invalidate(retrieve.corpus_key)
            return [len(searches)]

        retrieve = retrieval(cache, search)
        assert retrieve(None, "a") == [1]
        if refreshed:
            cache.invalidate(retrieve.corpus_key)
            drop[0] = True
            assert retrieve.refresh() == 1
        drop[0] = False
        assert retrieve(None, "a") == [len(searches)] == [3 if refreshed else 2]


def test_save_counts_what_was_stored() -> None:
    def wide(text: str) -> Floats:
        return np.full(4096, len(text), np.float32)

    with Cache(memory="256KiB") as cache:
        text = cache.wrap(wide, modality="text", signature="w-1")
        picture = cache.wrap(see, modality="image", signature="see-1")
        retrieve = Retrieval(cache, picture=picture, text=text, search=lambda *_: [1], corpus="1")
        for count in range(1, 21):
            retrieve(None, "x" * count)
        assert retrieve.report().remembered == 20
        assert retrieve.save() == 0  # one page of 20 × 16 KiB is more than the cache has


@pytest.mark.parametrize(
    "options",
    [
        {"near": 0.9}, {"remember": 2.5}, {"remember": True}, {"check_share": "1"}, {"picture": see},
        {"text": None}, {"swapped": True},
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_is_no_setting_is_refused_when_it_is_given(options: dict[str, Any]) -> None:
    with Cache(memory="1MiB") as cache:
        given = {"picture": cache.wrap(see, modality="image", signature="see-1")}
        given |= {"text": cache.wrap(read, modality="text", signature="r-1")}
        if options.pop("swapped", False):
            given = {"picture": given["text"], "text": given["picture"]}
        with pytest.raises(SettingsError):
            Retrieval(cache, search=lambda *_: [1], corpus="1", **given | options)


def test_saved_queries_of_another_width_are_left_behind(tmp_path: Path) -> None:
    width = [4]

    def vector(text: str) -> Floats:
        return np.full(width[0], len(text), np.float32)

    def made(cache: Cache) -> Retrieval:
        text = cache.wrap(vector, modality="text", signature="v-1")  # one signature for two models: his mistake
        picture = cache.wrap(see, modality="image", signature="see-1")
        means = Statistics(np.zeros(3, np.float32)), Statistics(np.zeros(width[0], np.float32))
        return Retrieval(cache, picture=picture, text=text, search=store, corpus="1", alignment=Alignment(*means))

    def store(*_: Any) -> list[int]:
        return [1]

    with Cache(tmp_path, memory="4MiB", disk="16MiB") as cache:
        retrieve = made(cache)
        retrieve(None, "a")
        assert retrieve.save() == 1
        assert made(cache).report().remembered == 1
        width[0] = 5
        assert made(cache).report().remembered == 0
        (failed,) = [event for event in cache.events.recent() if isinstance(event, Failed)]
        assert "not taken up" in failed.detail


@pytest.mark.parametrize("shaped", [lambda ids: {"ids": ids}, lambda ids: "".join(map(str, ids))])
def test_results_without_documents_teach_nothing(shaped: Any) -> None:
    """The first key of a dict is the same in every result: it must not count as the same first document."""
    searches: list[int] = []

    def search(*_: Any) -> Any:
        searches.append(1)
        return shaped([1, len(searches)])

    plain = Alignment(Statistics(np.zeros(3, np.float32)), Statistics(np.zeros(3, np.float32)))
    with Cache(memory="4MiB") as cache:
        retrieve = retrieval(cache, search, observe=True, alignment=plain)
        retrieve(None, "a wording")
        retrieve(None, "the wording")
        assert retrieve.observations() == []
        (failed,) = [event for event in cache.events.recent() if isinstance(event, Failed)]
        assert "pass documents=" in failed.detail
        taught = retrieval(cache, search, observe=True, alignment=plain, corpus="2", documents=lambda one: list(one))
        taught(None, "a wording")
        taught(None, "the wording")
        assert len(taught.observations()) == 1
