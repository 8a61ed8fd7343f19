"""RAGFlow's real SDK behind a cache, against a server that stands in for RAGFlow's HTTP API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ragflow_sdk")
pytest.importorskip("PIL")

from PIL import Image
from ragflow_sdk import RAGFlow
from tests.unit.integrations.ragflow_server import serving

from mmcache import Cache
from mmcache.integrations.ragflow import CachedRetrieval, JointRetrieval
from mmcache.model.errors import SettingsError

NOW = 1_800_000_000.0


@pytest.fixture
def stage() -> Iterator[Any]:
    with serving() as found:
        found.add("manual", "one", "press the red button", NOW - 1000)
        found.add("manual", "two", "never press twice", NOW - 1000)
        found.add("other", "three", "press on", NOW - 1000)
        yield found


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache(memory="8MiB") as made:
        yield made


def retrieval(stage: Any, cache: Cache, key: str = "key-a", **options: Any) -> CachedRetrieval:
    chosen: dict[str, Any] = {"clock": lambda: NOW} | options
    return CachedRetrieval(RAGFlow(key, stage.address), cache, **chosen)


def ids(chunks: list[Any]) -> list[str]:
    return [chunk.id for chunk in chunks]


def test_a_repeated_question_is_not_searched_for(stage: Any, cache: Cache) -> None:
    retrieve = retrieval(stage, cache)
    first = retrieve(dataset_ids=["manual"], question="press what")
    second = retrieve(["manual"], [], "press what")  # the same call
    assert ids(first) == ids(second) == ["chunk-one", "chunk-two"]
    assert len(stage.asked) == 1
    plain = retrieve.rag.retrieve(["manual"], question="press what")
    assert [one.to_json() for one in second] == [one.to_json() for one in plain]
    assert type(second[0]) is type(plain[0])
    assert second[0].rag is retrieve.rag


@pytest.mark.parametrize(
    "other",
    [
        {"question": "press that"},
        {"dataset_ids": ["manual", "other"]},
        {"dataset_ids": ["other", "manual"]},
        {"document_ids": ["one"]},
        {"page": 2},
        {"page_size": 1},
        {"similarity_threshold": 0.3},
        {"vector_similarity_weight": 0.4},
        {"top_k": 10},
        {"rerank_id": "bge"},
        {"keyword": True},
        {"cross_languages": ["German"]},
        {"metadata_condition": {"conditions": [{"name": "author", "value": "x"}]}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_every_argument_is_in_the_key(stage: Any, cache: Cache, other: dict[str, Any]) -> None:
    retrieve = retrieval(stage, cache)
    asked: dict[str, Any] = {"dataset_ids": ["manual"], "question": "press what"}
    retrieve(**asked)
    retrieve(**(asked | other))
    assert len(stage.asked) == 2
    retrieve(**(asked | other))
    assert len(stage.asked) == 2


def test_what_one_may_see_is_not_served_to_another(stage: Any, cache: Cache) -> None:
    asked: dict[str, Any] = {"dataset_ids": ["manual"], "question": "press"}
    retrieval(stage, cache)(**asked)
    retrieval(stage, cache, key="key-b")(**asked)
    assert len(stage.asked) == 2
    retrieval(stage, cache, tenant="another")(**asked)
    assert len(stage.asked) == 3
    mine = retrieval(stage, cache)
    assert "key-a" not in repr(cache.events.recent())
    stage.keys.remove("key-a")  # revoked
    with pytest.raises(Exception, match="invalid"):
        mine(**asked)


def test_a_change_of_a_dataset_is_seen(stage: Any, cache: Cache) -> None:
    retrieve = retrieval(stage, cache)
    retrieve(["manual"], question="press")
    stage.add("manual", "four", "press harder", NOW - 500)
    assert "chunk-four" in ids(retrieve(["manual"], question="press"))
    retrieve(["other"], question="press")
    asked = len(stage.asked)
    stage.datasets["manual"]["documents"][0] |= {"update_time": int((NOW - 100) * 1000)}  # parsed anew
    retrieve(["other"], question="press")
    assert len(stage.asked) == asked
    retrieve(["manual"], question="press")
    assert len(stage.asked) == asked + 1


def test_what_is_found_just_after_a_change_is_not_kept(stage: Any, cache: Cache) -> None:
    retrieve = retrieval(stage, cache, settle_seconds=10.0)
    stage.add("manual", "four", "press harder", NOW - 5)
    for _ in range(2):
        retrieve(["manual"], question="press")
    assert len(stage.asked) == 2


def test_its_word_may_be_believed_for_a_while(stage: Any, cache: Cache) -> None:
    now = [NOW]
    retrieve = retrieval(stage, cache, state_seconds=60.0, clock=lambda: now[0])
    for _ in range(3):
        retrieve(["manual"], question="press")
    assert stage.told == 1
    now[0] += 61
    retrieve(["manual"], question="press")
    assert stage.told == 2
    assert len(stage.asked) == 1


def test_a_version_that_the_caller_names(stage: Any, cache: Cache) -> None:
    version = ["1"]
    retrieve = retrieval(stage, cache, version=lambda: version[0])
    for _ in range(2):
        retrieve(["manual"], question="press")
    assert stage.told == 0
    assert len(stage.asked) == 1
    version[0] = "2"
    retrieve(["manual"], question="press")
    assert len(stage.asked) == 2
    version[0] = ""  # nobody knows
    for _ in range(2):
        retrieve(["manual"], question="press")
    assert len(stage.asked) == 4
    with pytest.raises(SettingsError):
        retrieval(stage, cache, version="")


def test_sources_that_changed_are_searched_anew(stage: Any, cache: Cache) -> None:
    retrieve = retrieval(stage, cache, version="1")
    retrieve(["manual"], ["one"], "press")
    for name in "manual", "one":
        cache.changed("document", name)
        retrieve(["manual"], ["one"], "press")
    assert len(stage.asked) == 3
    cache.changed("document", "elsewhere")
    retrieve(["manual"], ["one"], "press")
    assert len(stage.asked) == 3


def test_where_the_cache_or_the_state_fails_ragflow_is_asked(stage: Any, cache: Cache) -> None:
    retrieve = retrieval(stage, cache)
    del stage.datasets["other"]["update_time"]
    for _ in range(2):
        assert ids(retrieve(["other"], question="press")) == ["chunk-three"]
    assert len(stage.asked) == 2
    retrieve(["manual"], question="press")
    cache.close()
    assert ids(retrieve(["manual"], question="press")) == ["chunk-one", "chunk-two"]
    with pytest.raises(TypeError):
        retrieve(["manual"], nonsense=1)
    stage.down = True
    with pytest.raises(ValueError):
        retrieve(["manual"], question="press")


async def test_the_async_twin(stage: Any, cache: Cache) -> None:
    retrieve = retrieval(stage, cache)
    assert ids(await retrieve.a(["manual"], question="red")) == ["chunk-one"]
    assert ids(retrieve(["manual"], question="red")) == ["chunk-one"]
    assert len(stage.asked) == 1


# Picture and words ----------------------------------------------------------------------------------------------------


def joint(stage: Any, cache: Cache, seen: list[int], **options: Any) -> JointRetrieval:
    def see(picture: Any) -> Any:
        seen.append(1)
        return np.asarray(picture.convert("RGB"), np.float32).mean(axis=(0, 1))

    def read(text: str) -> Any:
        return np.array([len(text), 1.0], np.float32)

    def describe(vector: Any) -> str:
        return "red" if vector[0] > 128 else "twice"

    return JointRetrieval(
        retrieval(stage, cache), ["manual"],
        picture=cache.wrap(see, modality="image", signature="see 1"),
        text=cache.wrap(read, modality="text", signature="read 1"), describe=describe,
        **({"version": "describe 1"} | options),
    )  # fmt: skip


def test_picture_and_words_have_a_joint_key_and_a_locator(stage: Any, cache: Cache, tmp_path: Path) -> None:
    seen: list[int] = []
    find = joint(stage, cache, seen)
    Image.new("RGB", (8, 8), (255, 0, 0)).save(tmp_path / "a.png")
    Image.new("RGB", (8, 8), (255, 0, 0)).save(tmp_path / "b.bmp")
    located = find.locate(tmp_path / "a.png", "which one?")
    assert located.died == "picture"
    assert [row["id"] for row in located.value] == ["chunk-one"]
    assert stage.asked[-1]["question"] == "which one? red"
    again = find.locate(tmp_path / "b.bmp", "which one?")
    assert again.died is None
    assert again.value == located.value
    assert (len(seen), len(stage.asked)) == (1, 1)
    assert find.locate(tmp_path / "a.png", "which two?").died == "text"
    find(tmp_path / "a.png", "which one?", similarity_threshold=0.9)
    assert len(stage.asked) == 3
    stage.add("manual", "four", "red alert", NOW - 100)
    found = find.locate(tmp_path / "a.png", "which one?")
    assert found.died == "store"
    assert len(found.value) == 2
    assert len(seen) == 1
    assert find.locator.lookups == 5


def test_a_joint_lookup_survives_what_is_not_known(stage: Any, cache: Cache) -> None:
    seen: list[int] = []
    find = joint(stage, cache, seen)
    picture = Image.new("RGB", (8, 8), (255, 0, 0))
    stage.add("manual", "four", "red alert", NOW - 1)  # just now
    for _ in range(2):
        assert len(find(picture, "which one?")) == 2
    assert len(stage.asked) == 2
    stage.down = True
    with pytest.raises(ValueError):
        find(picture, "which one?")
    with pytest.raises(SettingsError):
        joint(stage, cache, seen, version="")
