"""The flow of a lookup: what is asked, what is served, what is dropped, and where it died."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from mmcache import Cache, InvalidInputError
from mmcache.keys.joint import Alignment, Statistics
from mmcache.model.errors import RetrievalError, SettingsError
from mmcache.model.event import Failed
from mmcache.retrieval import HopName, Locator, Retrieval, Tolerance

Floats = npt.NDArray[np.float32]
WORDS = ("red", "blue", "what", "where", "show", "colour", "place", "is")
PLAIN = Alignment(Statistics(np.zeros(48, np.float32)), Statistics(np.zeros(len(WORDS), np.float32)))
NEAR = Tolerance(0.95, 0.7)


def picture(seed: int) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((32, 32), Image.Resampling.NEAREST)


class World:
    """Models and a store that count, and fail when told to."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.pictures = self.texts = self.searches = 0
        self.broken = ""
        self.documents = list(range(100, 130))
        self.encode = cache.wrap(self.see, modality="image", signature="see-1", guard=False)
        self.embed = cache.wrap(self.read, modality="text", signature="read-1", guard=False)

    def see(self, image: Image.Image) -> Floats:
        if self.broken == "picture":
            raise RuntimeError("no GPU")
        self.pictures += 1
        return np.asarray(image.resize((4, 4), Image.Resampling.BOX), np.float32).reshape(-1) - 128

    def read(self, text: str) -> Floats:
        if self.broken == "text":
            raise RuntimeError("no tokenizer")
        self.texts += 1
        return np.array([text.split().count(word) for word in WORDS], np.float32)

    def search(self, picture: Floats | None, text: Floats | None, k: int, **_: Any) -> list[int]:
        if self.broken == "store":
            raise ConnectionError("refused")
        self.searches += 1
        return self.documents[self.searches : self.searches + k]

    def retrieval(self, **options: Any) -> Retrieval:
        given: dict[str, Any] = {"corpus": "1", "check_share": 0.0, "alignment": PLAIN} | options
        return Retrieval(self.cache, picture=self.encode, text=self.embed, search=self.search, **given)

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.pictures, self.texts, self.searches


@pytest.fixture
def world() -> Iterator[World]:
    with Cache(memory="16MiB") as cache:
        yield World(cache)


def test_a_repetition_asks_neither_model_nor_store(world: World) -> None:
    retrieve = world.retrieval()
    first = retrieve(picture(0), "what is red", 3)
    assert retrieve(picture(0), "what is red", 3) == first == [101, 102, 103]
    assert world.counts == (1, 1, 1)
    world.broken = "picture"
    assert retrieve(picture(0), "what is red", 3) == first  # nor does it need them


def test_whatever_differs_is_another_lookup(world: World) -> None:
    retrieve = world.retrieval()
    lookups: list[tuple[Any, ...]] = [
        (picture(0), "what is red", 3), (picture(1), "what is red", 3), (picture(0), "what is blue", 3),
        (picture(0), "what is red", 4), (None, "what is red", 3), (picture(0), None, 3),
    ]  # fmt: skip
    for lookup in lookups:
        retrieve(*lookup)
    retrieve(picture(0), "what is red", 3, language="en")
    retrieve(picture(0), "what is red", 3, language="de")
    assert world.searches == len(lookups) + 2
    assert world.counts[:2] == (2, 2)
    with pytest.raises(InvalidInputError):
        retrieve(None, None, 3)


def test_files_and_pictures_of_the_same_pixels_share(world: World, tmp_path: Path) -> None:
    retrieve = world.retrieval()
    for name in ("a.png", "b.bmp"):
        picture(0).save(tmp_path / name)
    found = retrieve(tmp_path / "a.png", "what")
    assert retrieve(str(tmp_path / "b.bmp"), "what") == found
    assert retrieve((tmp_path / "a.png").read_bytes(), "what") == found
    assert retrieve(picture(0), "what") == found
    assert world.searches == 1


def test_near_queries_are_served_only_where_allowed(world: World) -> None:
    exact, near = world.retrieval(), world.retrieval(near=NEAR)
    smaller = picture(0).resize((28, 28))
    for retrieve, searches in ((exact, 2), (near, 3)):
        retrieve(picture(0), "what is red", 3)
        retrieve(smaller, "what is red", 3)
        retrieve(smaller, "what is red", 3) if retrieve is exact else None
        assert world.searches <= searches
    report = near.report()
    assert (report.near, report.remembered) == (0, 0)  # what `exact` searched for, it hit by its key
    other = world.retrieval(near=NEAR, corpus="2")
    first = other(picture(0), "what is red", 3)
    assert other(smaller, "what is red", 3) == first
    assert other(picture(0), "what red is", 3) == first
    assert other(picture(0), "what is blue", 3) != first  # 2 of 3 words
    assert other(picture(5), "what is red", 3) != first
    assert other.report().near == 2


def test_a_near_hit_is_not_passed_on(world: World) -> None:
    """It is neither stored under its own key nor remembered, so that A ~ B ~ C does not make A ~ C."""
    retrieve = world.retrieval(near=NEAR)
    retrieve(picture(0), "what is red", 3)
    near = picture(0).resize((28, 28))
    retrieve(near, "what is red", 3)
    assert retrieve.report().remembered == 1
    strict = world.retrieval()
    strict(near, "what is red", 3)
    assert world.searches == 2


def test_checked_near_hits_get_what_the_store_says(world: World) -> None:
    retrieve = world.retrieval(near=NEAR, check_share=1.0)
    retrieve(picture(0), "what is red", 3)
    assert retrieve(picture(0), "what red is", 3) == [102, 103, 104]
    report = retrieve.report()
    assert (report.checked, report.wrong, report.near) == (1, 1, 0)
    assert report.overlap == pytest.approx(2 / 3)
    assert report.wrong_rate[0] == pytest.approx(0.025)
    assert "1 checked, 1 wrong" in str(report)


def test_what_is_only_remembered_fails_no_lookup(world: World) -> None:
    broken = world.retrieval(near=NEAR, check_share=1.0, documents=lambda value: value["ids"])
    broken(picture(0), "what is red", 3)
    assert broken(picture(0), "what red is", 3) == [102, 103, 104]
    other = world.retrieval(near=NEAR, corpus="2", alignment=Alignment.fit(np.eye(3), np.eye(3)))
    assert other(picture(0), "what is red", 3) == [103, 104, 105]
    failed = [event for event in world.cache.events.recent() if isinstance(event, Failed)]
    assert [event.where for event in failed] == ["retrieval", "retrieval"]
    assert "alignment of its own" in failed[1].detail


def test_observing_serves_nothing_and_learns(world: World) -> None:
    retrieve = world.retrieval(observe=True)
    retrieve(picture(0), "what is red", 3)
    retrieve(picture(0), "what red is", 3)
    assert world.searches == 2
    (seen,) = retrieve.observations()
    assert (seen.picture, seen.wrong) == (1.0, True)
    assert seen.text == pytest.approx(1.0)


def test_another_corpus_drops_every_result(world: World) -> None:
    retrieve = world.retrieval(near=NEAR)
    retrieve(picture(0), "what is red", 3)
    blocks = world.cache.stats().tiers["memory"].blocks
    retrieve.changed("2")
    assert world.cache.stats().tiers["memory"].blocks == blocks - 1  # gone, not only out of reach
    assert retrieve(picture(0), "what is red", 3) == [102, 103, 104]
    assert retrieve(picture(0), "what red is", 3) == [102, 103, 104]
    assert world.counts == (1, 2, 2)  # embeddings stay
    world.cache.invalidate(retrieve.corpus_key)
    retrieve(picture(0), "what is red", 3)
    assert world.searches == 3


def test_a_store_that_changes_meanwhile_is_not_believed_twice(world: World) -> None:
    version = ["1"]
    retrieve = world.retrieval(corpus=lambda: version[0])
    search = world.search

    def change(*args: Any, **keywords: Any) -> list[int]:
        version[0] = str(int(version[0]) + 1) if int(version[0]) < 3 else "3"
        return search(*args, **keywords)

    world.search = change  # type: ignore[method-assign]
    retrieve = world.retrieval(corpus=lambda: version[0])
    assert retrieve(picture(0), "what", 2) == [101, 102]
    assert retrieve(picture(0), "what", 2) == [102, 103]
    assert retrieve(picture(0), "what", 2) == [103, 104]
    assert retrieve(picture(0), "what", 2) == [103, 104]  # the first one during which nothing changed
    with pytest.raises(SettingsError, match="corpus is a function"):
        retrieve.changed("9")


def test_refresh_asks_again_without_a_model(world: World) -> None:
    retrieve = world.retrieval()
    for seed in (0, 1, 1, 1, 2, 2):
        retrieve(picture(seed), "what", 2)
    retrieve.changed("2")
    assert retrieve.refresh(limit=2) == 2
    assert retrieve.refresh() == 1
    assert retrieve.refresh() == 0
    counts = world.counts
    assert retrieve(picture(1), "what", 2) == [104, 105]  # asked most often: refreshed first
    assert world.counts == counts == (3, 1, 6)
    assert world.retrieval(remember=0).refresh() == 0


@pytest.mark.parametrize("hop", ["picture", "text", "store"])
def test_errors_name_their_hop_and_keep_their_cause(world: World, hop: str) -> None:
    locator = Locator()
    retrieve = world.retrieval(near=NEAR, locator=locator)
    world.broken = hop
    with pytest.raises(RetrievalError, match=hop) as caught:
        retrieve(picture(0), "what", 2)
    assert caught.value.hop == hop
    assert isinstance(caught.value.__cause__, RuntimeError | ConnectionError)
    located = retrieve.locate(picture(0), "what", 2)
    hop_name = HopName(hop)
    assert located.died is hop_name
    assert [hop.name for hop in located.hops if hop.outcome == "failed"] == [hop_name]
    assert located.error is not None
    assert locator.hop(hop).failed == 2
    world.broken = ""
    assert retrieve(picture(0), "what", 2) == [101, 102]  # nothing of the failure was kept


def test_the_locator_says_where_a_lookup_died(world: World) -> None:
    locator = Locator()
    retrieve = world.retrieval(near=NEAR, locator=locator)

    def died(seed: int, words: str) -> HopName | None:
        return retrieve.locate(picture(seed), words, 2).died

    assert died(0, "what is red") is HopName.PICTURE
    assert died(0, "what is red") is None
    assert died(0, "where show") is HopName.TEXT
    assert died(1, "where show") is HopName.PICTURE
    assert died(1, "what is red") is HopName.JOINT  # both known, not together
    retrieve.changed("2")
    assert died(0, "what is red") is HopName.STORE  # known, but of another corpus
    assert (locator.lookups, locator.hits) == (6, 1)
    assert [locator.hop(name).died for name in HopName] == [2, 1, 1, 1]
    assert locator.hop("store").outcomes == {"searched": 5}
    assert "died at: store" in str(locator.recent()[-1])
    assert "6 lookups, hits: 16.7%" in str(locator)


def test_hops_add_up_and_name_what_they_did(world: World) -> None:
    retrieve = world.retrieval(near=NEAR)
    first = retrieve.locate(picture(0), "what is red", 2)
    assert [(hop.name.value, hop.outcome) for hop in first.hops] == [
        ("picture", "computed"), ("text", "computed"), ("joint", "miss"), ("store", "searched"),
    ]  # fmt: skip
    again = retrieve.locate(picture(0), "what is red", 2)
    assert [hop.outcome for hop in again.hops] == ["known", "known", "hit"]
    near = retrieve.locate(picture(0), "what red is", 2)
    assert [hop.outcome for hop in near.hops] == ["held", "computed", "near"]
    assert near.hops[-1].detail == "picture 1.00, words 1.00"
    assert retrieve.locate(None, "what is red", 2).hops[0].outcome == "none given"
    assert first.seconds == pytest.approx(sum(hop.seconds for hop in first.hops))


def test_concurrent_lookups_search_once(world: World) -> None:
    retrieve, gate = world.retrieval(), threading.Event()
    search = world.search

    def slow(*args: Any, **keywords: Any) -> list[int]:
        gate.wait(10)
        return search(*args, **keywords)

    world.search = slow  # type: ignore[method-assign]
    retrieve = world.retrieval()
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(retrieve(picture(0), "what", 2))) for _ in range(6)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join()
    assert found == [[101, 102]] * 6
    assert world.searches == 1


def test_a_picture_that_changes_meanwhile_is_refused(world: World) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)

    def see(image: Any) -> Floats:
        pixels[:] = 255  # somebody writes into the caller's array
        return np.ones(48, np.float32)

    encode = world.cache.wrap(see, modality="image", signature="writes-1", guard=False)
    retrieve = Retrieval(
        world.cache, picture=encode, text=world.embed, search=world.search, corpus="1", alignment=PLAIN
    )
    with pytest.raises(InvalidInputError, match="changed while"):
        retrieve(pixels, "what", 2)
    assert world.searches == 0


def test_an_encoder_that_gives_no_vector_is_refused(world: World) -> None:
    tokens = world.cache.wrap(lambda one: np.ones((3, 4)), modality="image", signature="tokens-1", guard=False)
    retrieve = Retrieval(world.cache, picture=tokens, text=world.embed, search=world.search, corpus="1")
    with pytest.raises(InvalidInputError, match="one finite vector"):
        retrieve(picture(0), "what", 2)


@pytest.mark.parametrize(
    "bad",
    [{"strategy": "sound"}, {"check_share": 1.5}, {"corpus": ""}, {"remember": -1}, {"near": NEAR, "remember": 0}],
)
def test_settings_are_checked(world: World, bad: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        world.retrieval(**bad)


def test_tenants_share_nothing(world: World) -> None:
    one, other = world.retrieval(tenant="one"), world.retrieval(tenant="other")
    assert one(picture(0), "what", 2) != other(picture(0), "what", 2)
    assert world.counts == (2, 2, 2)
    with pytest.raises(InvalidInputError, match="tenant"):
        world.retrieval(tenant="")


def test_switched_off_it_asks_every_time(world: World) -> None:
    retrieve = world.retrieval(near=NEAR)
    retrieve(picture(0), "what", 2)
    world.cache.switch("off")
    retrieve(picture(0), "what", 2)
    retrieve(picture(0), "what", 2)
    assert world.searches == 3


def test_the_async_twin(world: World) -> None:
    retrieve = world.retrieval()
    assert asyncio.run(retrieve.a(picture(0), "what", 2)) == [101, 102]
    assert retrieve(picture(0), "what", 2) == [101, 102]


def test_results_survive_a_restart(tmp_path: Path) -> None:
    for searches in (1, 0):
        with Cache(tmp_path, memory="16MiB", secret=bytes(32)) as cache:
            world = World(cache)
            assert world.retrieval()(picture(0), "what", 2) == [101, 102]
            assert world.searches == searches


def test_remembered_queries_survive_a_restart_where_saved(tmp_path: Path) -> None:
    """Near hits and `refresh` go on; with another model of as many dimensions nothing is taken up."""
    for version, kept in (("see-1", 0), ("see-1", 3), ("see-2", 0)):
        with Cache(tmp_path, memory="16MiB", secret=bytes(32)) as cache:
            world = World(cache)
            world.encode = cache.wrap(world.see, modality="image", signature=version, guard=False)
            retrieve = world.retrieval(near=NEAR)
            assert retrieve.report().remembered == kept
            if kept:
                assert retrieve(picture(0).resize((28, 28)), "what is red", 2) == [101, 102]
                assert retrieve(None, "is what red", 2) == [103, 104]
                assert world.searches == 0
                retrieve.changed("2")
                assert retrieve.refresh() == 3
            else:
                for one, words in ((picture(0), "what is red"), (picture(1), None), (None, "what is red")):
                    retrieve(one, words, 2)
                # Words alone are found by their key in the third round: the store is not asked, nothing to remember.
                assert retrieve.save() == (3 if version == "see-1" else 2)


def test_fewer_queries_replace_more(tmp_path: Path) -> None:
    with Cache(tmp_path, memory="16MiB", secret=bytes(32)) as cache:
        world = World(cache)
        many = world.retrieval()
        for number in range(300):
            many(None, f"what {number}", 2)
        assert many.save() == 300
        few = world.retrieval(remember=100)
        assert few.report().remembered == 100
        assert few.save() == 100
        assert world.retrieval().report().remembered == 100
