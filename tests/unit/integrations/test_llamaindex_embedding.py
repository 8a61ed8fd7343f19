"""The door of LlamaIndex: embeddings."""

from __future__ import annotations

import asyncio
import base64
import pickle
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import pytest
from PIL import Image

pytest.importorskip("llama_index.core", reason="needs llama-index-core")

from llama_index.core import MockEmbedding
from llama_index.core.callbacks import CallbackManager, TokenCountingHandler
from llama_index.core.embeddings import MockMultiModalEmbedding
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.storage.kvstore import SimpleKVStore

from mmcache import Cache, UnversionedModelError
from mmcache.integrations.framework.realm import Realm
from mmcache.integrations.llamaindex import CachedEmbedding, CachedMultiModalEmbedding, CacheHitEvent, CacheMissEvent
from mmcache.model.errors import MMCacheError, SettingsError
from mmcache.model.event import Failed

ASKED: dict[int, list[Any]] = {}
"""What each model was asked: not in the model, whose settings must not change when it is asked."""


class Asked:
    """The list of what a model was asked."""

    def __get__(self, model: Any, owner: Any = None) -> list[Any]:
        return ASKED.setdefault(id(model), [])


@pytest.fixture(autouse=True)
def _nobody_asked() -> None:
    ASKED.clear()


class Letters(MockEmbedding):  # type: ignore[misc]
    """Counts what it is asked; a query's vector is another one than a passage's."""

    query_instruction: str = ""
    api_key: str = "sk-secret"
    asked: ClassVar[Any] = Asked()

    def _get_text_embedding(self, text: str) -> list[float]:
        self.asked.append(text)
        return [float(sum(text.encode()) % 89), 1.0, 0.1]

    def _get_query_embedding(self, query: str) -> list[float]:
        self.asked.append(("query", query))
        return [float(sum((self.query_instruction + query).encode()) % 89), 2.0, 0.1]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        await asyncio.sleep(0)
        return self._get_text_embedding(text)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        await asyncio.sleep(0)
        return self._get_query_embedding(query)


class Eyes(MockMultiModalEmbedding):  # type: ignore[misc]
    """Sees the mean of a picture's pixels; and whatever rotation its file has."""

    asked: ClassVar[Any] = Asked()

    def _get_image_embedding(self, img_file_path: Any) -> list[float]:
        self.asked.append(img_file_path)
        picture = Image.open(img_file_path)
        return [float(picture.width), float(picture.height), float(sum(picture.convert("RGB").tobytes()) % 997)]


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache() as cache:
        yield cache


def letters(**options: Any) -> Letters:
    return Letters(**({"embed_dim": 3, "model_name": "letters-1"} | options))


def test_only_misses_reach_the_model_and_queries_are_no_passages(cache: Cache) -> None:
    model = letters()
    embed = CachedEmbedding(model, cache)
    plain = letters()
    assert embed.get_text_embedding_batch(["a", "b", "a"]) == plain.get_text_embedding_batch(["a", "b", "a"])
    assert model.asked == ["a", "b"]
    assert embed.get_text_embedding_batch(["c", "b"]) == plain.get_text_embedding_batch(["c", "b"])
    assert model.asked == ["a", "b", "c"]
    assert embed.get_text_embedding("a") == plain.get_text_embedding("a")
    assert embed.get_query_embedding("a") == plain.get_query_embedding("a")
    assert embed.get_query_embedding("a") != embed.get_text_embedding("a")
    assert model.asked == ["a", "b", "c", ("query", "a")]
    assert embed.get_agg_embedding_from_queries(["a"]) == plain.get_query_embedding("a")
    assert model.asked == ["a", "b", "c", ("query", "a")]


async def test_the_async_twins_share_and_await_the_model(cache: Cache) -> None:
    model = letters()
    embed = CachedEmbedding(model, cache)
    first = await embed.aget_text_embedding_batch(["a", "b"])
    both = await asyncio.gather(*(embed.aget_text_embedding_batch(["a", "b", "c"]) for _ in range(8)))
    assert all(one[:2] == first for one in both)
    assert sorted(model.asked) == ["a", "b", "c"]
    assert await embed.aget_query_embedding("q") == await embed.aget_query_embedding("q")
    assert await embed.aget_text_embedding("a") == embed.get_text_embedding("a")
    assert len(model.asked) == 4


def test_what_a_caller_writes_to_a_vector_stays_with_him(cache: Cache) -> None:
    embed = CachedEmbedding(letters(), cache)
    embed.get_text_embedding("a")
    hit = embed.get_text_embedding("a")
    hit[0] = 1e9
    assert embed.get_text_embedding("a")[0] != 1e9


@pytest.mark.parametrize(
    "other", [{"model_name": "letters-2"}, {"query_instruction": "ask: "}, {"embed_dim": 4}], ids=str
)
def test_another_model_or_setting_is_another_key(cache: Cache, other: dict[str, Any]) -> None:
    CachedEmbedding(letters(), cache).get_text_embedding_batch(["a"])
    model = letters(**other)
    CachedEmbedding(model, cache).get_text_embedding_batch(["a"])
    assert model.asked == ["a"]


def test_a_setting_that_changes_later_is_seen(cache: Cache) -> None:
    model = letters()
    embed = CachedEmbedding(model, cache)
    before = embed.get_query_embedding("a")
    model.query_instruction = "other: "
    assert embed.get_query_embedding("a") == letters(query_instruction="other: ").get_query_embedding("a") != before
    model.query_instruction = ""
    assert embed.get_query_embedding("a") == before


def test_what_only_delivers_is_no_part_of_the_key(cache: Cache) -> None:
    CachedEmbedding(letters(), cache).get_text_embedding_batch(["a"])
    model = letters(embed_batch_size=3, num_workers=2, api_key="sk-rotated")
    CachedEmbedding(model, cache).get_text_embedding_batch(["a"])
    assert model.asked == []


def test_weights_behind_a_path_count_by_their_bytes(cache: Cache, tmp_path: Path) -> None:
    weights = tmp_path / "model.bin"
    weights.write_bytes(b"one")
    CachedEmbedding(letters(model_name=str(weights)), cache).get_text_embedding_batch(["a"])
    weights = tmp_path / "other" / "model.bin"
    weights.parent.mkdir()
    weights.write_bytes(b"two")
    model = letters(model_name=str(weights))
    CachedEmbedding(model, cache).get_text_embedding_batch(["a"])
    assert model.asked == ["a"]


def test_a_model_without_a_name_is_refused_unless_somebody_says_which_it_is(cache: Cache) -> None:
    with pytest.raises(UnversionedModelError, match="signature="):
        CachedEmbedding(Letters(embed_dim=3), cache)
    with pytest.raises(UnversionedModelError):
        CachedEmbedding(letters(), cache, signature="")
    one, other = letters(), letters()
    CachedEmbedding(one, cache, signature="letters 1").get_text_embedding("a")
    CachedEmbedding(other, cache, signature="letters 2").get_text_embedding("a")
    assert one.asked == other.asked == ["a"]


def test_llamaindex_own_embeddings_cache_would_take_a_query_for_a_passage(cache: Cache) -> None:
    """The hole that is not inherited: its key is the text alone."""
    own = letters(embeddings_cache=SimpleKVStore())
    assert own.get_text_embedding("a") == own.get_query_embedding("a") != letters().get_query_embedding("a")
    with pytest.raises(SettingsError, match="embeddings_cache"):
        CachedEmbedding(own, cache)
    with pytest.raises(SettingsError):
        CachedEmbedding(letters(), cache).embeddings_cache = SimpleKVStore()


def test_tenants_never_share_and_who_has_none_is_not_cached(cache: Cache) -> None:
    said: list[Any] = ["a", "a", "b", None, ""]
    model = letters()
    embed = CachedEmbedding(model, cache, tenant=lambda: said.pop(0))
    for _ in range(5):
        embed.get_text_embedding("x")
    assert len(model.asked) == 4
    assert sum(isinstance(event, Failed) for event in cache.events.recent()) == 2

    def lost() -> str:
        raise LookupError("no request")

    lonely = letters()
    alone = CachedEmbedding(lonely, cache, tenant=lost)
    assert alone.get_text_embedding("x") == alone.get_text_embedding("x")
    assert lonely.asked == ["x", "x"]


def test_namespaces_never_share(cache: Cache) -> None:
    CachedEmbedding(letters(), cache, namespace="one").get_text_embedding("a")
    model = letters()
    CachedEmbedding(model, cache, namespace="two").get_text_embedding("a")
    assert model.asked == ["a"]


def test_no_failure_of_the_cache_fails_a_call() -> None:
    cache = Cache()
    model = letters()
    embed = CachedEmbedding(model, cache)
    cache.close()
    assert embed.get_text_embedding_batch(["a", "b"]) == letters().get_text_embedding_batch(["a", "b"])
    assert asyncio.run(embed.aget_text_embedding("a")) == letters().get_text_embedding("a")
    assert model.asked == ["a", "b", "a"]


def test_a_text_without_an_identity_is_computed_among_the_others(cache: Cache) -> None:
    model = letters()

    class Odd(Letters):
        def _get_text_embedding(self, text: str) -> list[float]:
            self.asked.append(text)
            return [float(len(text))]

    model = Odd(embed_dim=1, model_name="odd")
    embed = CachedEmbedding(model, cache)
    assert embed.get_text_embedding_batch(["a", "\ud800b", "ccc"]) == [[1.0], [2.0], [3.0]]
    assert embed.get_text_embedding_batch(["a", "\ud800b", "ccc"]) == [[1.0], [2.0], [3.0]]
    assert sorted(model.asked) == ["a", "ccc", "\ud800b", "\ud800b"]


def test_what_the_model_raises_reaches_the_caller_and_is_not_kept(cache: Cache) -> None:
    class Broken(Letters):
        broken: bool = True

        def _get_text_embedding(self, text: str) -> list[float]:
            if self.broken:
                raise MMCacheError("the model's own") if text == "ours" else ValueError("boom")
            return [1.0]

    model = Broken(embed_dim=1, model_name="broken")
    embed = CachedEmbedding(model, cache)
    with pytest.raises(ValueError, match="boom"):
        embed.get_text_embedding("a")
    with pytest.raises(MMCacheError, match="the model's own"):
        embed.get_text_embedding("ours")
    model.broken = False
    assert embed.get_text_embedding("a") == [1.0]


def test_threads_that_ask_the_same_compute_once(cache: Cache) -> None:
    model = letters()
    embed = CachedEmbedding(model, cache)
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        embed.get_text_embedding_batch(["a", "b"])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(model.asked) == ["a", "b"]


class Heard(BaseEventHandler):  # type: ignore[misc]
    events: list[Any] = []  # noqa: RUF012 - pydantic copies it

    def handle(self, event: Any, **options: Any) -> None:
        self.events.append(event)


@pytest.fixture
def heard() -> Iterator[list[Any]]:
    handler = Heard(events=[])
    root = get_dispatcher()
    root.add_event_handler(handler)
    yield handler.events
    root.event_handlers.remove(handler)


def test_instrumentation_hears_hits_and_real_calls_only(cache: Cache, heard: list[Any]) -> None:
    embed = CachedEmbedding(letters(), cache)
    embed.get_text_embedding_batch(["a", "b"])
    embed.get_text_embedding_batch(["a", "b", "c"])
    told = [(e.class_name(), getattr(e, "count", None)) for e in heard if isinstance(e, CacheHitEvent | CacheMissEvent)]
    assert told == [("CacheMissEvent", 2), ("CacheHitEvent", 2), ("CacheMissEvent", 1)]
    ended = [event.chunks for event in heard if event.class_name() == "EmbeddingEndEvent"]
    assert ended == [["a", "b"], ["c"]]
    assert "secret" not in str([event.model_dump() for event in heard])


def test_token_counters_count_what_was_computed(cache: Cache) -> None:
    counter = TokenCountingHandler(tokenizer=str.split)
    embed = CachedEmbedding(letters(), cache)
    embed.callback_manager = CallbackManager([counter])
    embed.get_text_embedding_batch(["one two three"])
    embed.get_text_embedding_batch(["one two three"])
    assert counter.total_embedding_token_count == 3


def test_it_tells_its_configuration_without_secrets_and_can_be_sent(tmp_path: Path) -> None:
    with Cache(tmp_path / "cache") as cache:
        embed = CachedEmbedding(letters(), cache, tenant="acme")
        assert "secret" not in str(embed.to_dict()) + str(embed.to_payload()) + embed.to_json()
        embed.get_text_embedding("a")
        cache.flush()
        twin = pickle.loads(pickle.dumps(embed))  # noqa: S301 - as LlamaIndex sends components to its workers
        assert twin.get_text_embedding("a") == embed.get_text_embedding("a")
        assert twin.embed_model is not embed.embed_model
        assert twin.embed_model.asked == []
        assert isinstance(twin._realm, Realm)
        twin._realm.cache.close()


def test_it_can_be_copied(cache: Cache) -> None:
    embed = CachedEmbedding(letters(), cache)
    assert embed.model_copy().get_text_embedding("a") == embed.get_text_embedding("a")


def test_pictures_count_by_their_pixels(cache: Cache, tmp_path: Path) -> None:
    model = Eyes(embed_dim=3, model_name="eyes-1")
    embed = CachedEmbedding(model, cache)
    assert isinstance(embed, CachedMultiModalEmbedding)
    picture = Image.effect_noise((24, 16), 60).convert("RGB")
    path = tmp_path / "one.png"
    picture.save(path)
    other = tmp_path / "copy.bmp"
    picture.save(other)
    first = embed.get_image_embedding(str(path))
    assert first == Eyes(embed_dim=3).get_image_embedding(str(path))
    assert embed.get_image_embedding(str(other)) == first
    assert embed.get_image_embedding(BytesIO(path.read_bytes())) == first
    assert embed.get_image_embedding_batch([str(path), str(other)]) == [first, first]
    assert asyncio.run(embed.aget_image_embedding(str(path))) == first
    assert asyncio.run(embed.aget_image_embedding_batch([str(path)])) == [first]
    assert len(model.asked) == 1
    Image.new("RGB", (24, 16)).save(path)  # another picture under the same name
    assert embed.get_image_embedding(str(path)) != first


def test_a_rotated_file_and_its_upright_picture_are_one_for_the_model_too(cache: Cache) -> None:
    """A model that ignores the rotation a file speaks of is given upright pixels, so that both may share."""
    picture = Image.effect_noise((24, 16), 60).convert("RGB")
    upright, turned = BytesIO(), BytesIO()
    picture.transpose(Image.Transpose.ROTATE_90).save(turned, "PNG", exif=_turned())
    picture.save(upright, "PNG")
    model = Eyes(embed_dim=3, model_name="eyes-1")
    embed = CachedEmbedding(model, cache)
    assert embed.get_image_embedding(turned)[:2] == [24.0, 16.0]
    assert embed.get_image_embedding(upright)[:2] == [24.0, 16.0]
    assert len(model.asked) == 1


def _turned() -> Any:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def test_an_address_is_handed_on_and_not_kept(cache: Cache) -> None:
    class Remote(Eyes):
        def _get_image_embedding(self, img_file_path: Any) -> list[float]:
            self.asked.append(img_file_path)
            return [1.0]

    model = Remote(embed_dim=1, model_name="remote")
    embed = CachedEmbedding(model, cache)
    for _ in range(2):
        assert embed.get_image_embedding("https://example.com/cat.png") == [1.0]
    assert model.asked == ["https://example.com/cat.png"] * 2


def test_the_wrong_things_are_refused(cache: Cache) -> None:
    with pytest.raises(SettingsError):
        CachedEmbedding(object(), cache)
    with pytest.raises(SettingsError):
        CachedEmbedding(letters(), "folder")  # type: ignore[arg-type]
    with pytest.raises(SettingsError):
        CachedEmbedding(letters(), cache, tenant="")
    with pytest.raises(SettingsError):
        CachedEmbedding(letters(), cache, ttl=-1)


def test_base64_is_not_a_picture_by_accident(cache: Cache) -> None:
    model = Eyes(embed_dim=3, model_name="eyes-1")
    embed = CachedEmbedding(model, cache)
    with pytest.raises((FileNotFoundError, OSError)):
        embed.get_image_embedding(base64.b64encode(b"no picture").decode())
