"""Haystack's embedders behind a cache: what is the same, what is not, and what is never kept."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")  # nothing leaves this machine
pytest.importorskip("haystack")

from haystack import Document, Pipeline, component, default_to_dict
from haystack.components.embedders import MockDocumentEmbedder, MockTextEmbedder, OpenAITextEmbedder
from haystack.core.errors import SerializationError
from haystack.dataclasses import ByteStream
from haystack.utils import Secret

from mmcache import Cache
from mmcache.integrations.haystack import CacheConfig, CachedDocumentEmbedder, CachedTextEmbedder
from mmcache.model.errors import MMCacheError, SettingsError, UnversionedModelError


@component
class CountingEmbedder:
    """Embeds what real ones do; counts, and fails where it is told to."""

    def __init__(
        self, model: str = "counting 1", prefix: str = "", meta_fields_to_embed: list[str] | None = None,
        batch_size: int = 32,
    ) -> None:  # fmt: skip
        self.model, self.prefix, self.batch_size = model, prefix, batch_size
        self.meta_fields_to_embed = meta_fields_to_embed or []
        self.seen: list[list[str]] = []
        self.fails: set[str] = set()

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = default_to_dict(
            self, model=self.model, prefix=self.prefix, meta_fields_to_embed=self.meta_fields_to_embed,
            batch_size=self.batch_size,
        )  # fmt: skip
        return told

    @component.output_types(documents=list[Document], meta=dict[str, Any])  # type: ignore[untyped-decorator]
    def run(self, documents: list[Document]) -> dict[str, Any]:
        texts = {}  # by id, as Haystack's own do
        for one in documents:
            fields = [str(one.meta[name]) for name in self.meta_fields_to_embed if name in one.meta]
            texts[one.id] = self.prefix + "|".join([*fields, one.content or ""])
        self.seen.append(list(texts.values()))
        made = [
            replace(one)
            if one.content in self.fails
            else replace(one, embedding=[float(len(texts[one.id])), float(sum(map(ord, texts[one.id])))])
            for one in documents
        ]
        return {"documents": made, "meta": {"model": self.model, "usage": {"prompt_tokens": len(documents)}}}


@pytest.fixture
def config(tmp_path: Path) -> CacheConfig:
    return CacheConfig(root=str(tmp_path / "cache"), memory="16MiB")


@pytest.fixture
def embedder(config: CacheConfig) -> Iterator[CachedDocumentEmbedder]:
    made = CachedDocumentEmbedder(CountingEmbedder(), config)
    yield made
    made.close()


def vectors(outputs: dict[str, Any]) -> list[Any]:
    return [one.embedding for one in outputs["documents"]]


def test_a_text_is_embedded_once_and_usage_is_honest(config: CacheConfig) -> None:
    embedder = CachedTextEmbedder(MockTextEmbedder(dimension=4), config)
    first, second = embedder.run(text="a cat"), embedder.run(text="a cat")
    assert first["embedding"] == second["embedding"] == MockTextEmbedder(dimension=4).run("a cat")["embedding"]
    assert first["meta"]["usage"] == {"prompt_tokens": 2, "total_tokens": 2}
    assert first["meta"]["mmcache"] == {"hit": False}
    assert second["meta"]["usage"] == {"prompt_tokens": 0, "total_tokens": 0}
    assert second["meta"]["mmcache"] == {"hit": True, "saved_usage": first["meta"]["usage"]}
    assert embedder.run(text="a dog")["embedding"] != first["embedding"]
    embedder.close()


@pytest.mark.parametrize(
    "other",
    [
        MockTextEmbedder(dimension=4, prefix="query: "),
        MockTextEmbedder(dimension=4, suffix="!"),
        MockTextEmbedder(dimension=4, model="another"),
        MockTextEmbedder(dimension=5),
    ],
    ids=["prefix", "suffix", "model", "dimension"],
)
def test_another_configuration_is_another_model(config: CacheConfig, other: Any) -> None:
    CachedTextEmbedder(MockTextEmbedder(dimension=4), config).run(text="x")
    asked = CachedTextEmbedder(other, config)
    assert asked.run(text="x")["meta"]["mmcache"] == {"hit": False}


def test_reconfiguring_the_wrapped_component_is_noticed(config: CacheConfig) -> None:
    inner = MockTextEmbedder(dimension=4)
    embedder = CachedTextEmbedder(inner, config)
    plain = embedder.run(text="x")["embedding"]
    inner.prefix = "query: "
    assert embedder.run(text="x")["embedding"] == inner.run("x")["embedding"] != plain


def test_tenants_share_nothing_and_a_missing_one_is_never_guessed(config: CacheConfig) -> None:
    embedder = CachedTextEmbedder(MockTextEmbedder(dimension=4), config)
    assert not embedder.run(text="x", cache_tenant="a")["meta"]["mmcache"]["hit"]
    assert not embedder.run(text="x", cache_tenant="b")["meta"]["mmcache"]["hit"]
    assert not embedder.run(text="x")["meta"]["mmcache"]["hit"]
    assert embedder.run(text="x", cache_tenant="a")["meta"]["mmcache"]["hit"]
    for empty in ("", 7):
        for _ in range(2):
            assert not embedder.run(text="x", cache_tenant=empty)["meta"]["mmcache"]["hit"]
    strict = CachedTextEmbedder(MockTextEmbedder(dimension=4), config, per_tenant=True)
    assert strict.__haystack_input__.cache_tenant.is_mandatory  # type: ignore[attr-defined]
    for _ in range(2):
        assert not strict.run(text="x", cache_tenant=None)["meta"]["mmcache"]["hit"]


def test_only_misses_reach_the_embedder_in_order(embedder: CachedDocumentEmbedder) -> None:
    documents = [Document(content=text, meta={"n": n}) for n, text in enumerate(["a", "bb", "a", "ccc"])]
    first = embedder.run(documents=documents)
    assert embedder.embedder.seen == [["a", "bb", "ccc"]]
    assert [one.content for one in first["documents"]] == ["a", "bb", "a", "ccc"]
    assert [one.meta for one in first["documents"]] == [{"n": n} for n in range(4)]
    assert first["meta"]["mmcache"] == {"hits": 1, "misses": 3}
    assert first["meta"]["usage"] == {"prompt_tokens": 3}
    again = embedder.run(documents=[*reversed(documents), Document(content="new")])
    assert embedder.embedder.seen[1:] == [["new"]]
    assert vectors(again)[:4] == list(reversed(vectors(first)))
    assert again["meta"]["usage"] == {"prompt_tokens": 1}
    whole = embedder.run(documents=documents)
    assert whole["meta"] == {
        "model": "counting 1", "usage": {"prompt_tokens": 0}, "mmcache": {"hits": 4, "misses": 0},
    }  # fmt: skip
    assert vectors(whole) == vectors(first)
    assert [one.id for one in whole["documents"]] == [one.id for one in documents]


def test_the_key_holds_the_embedded_meta_and_nothing_else_of_it(config: CacheConfig) -> None:
    embedder = CachedDocumentEmbedder(CountingEmbedder(meta_fields_to_embed=["title"]), config)
    embedder.run(documents=[Document(content="x", meta={"title": "one", "page": 1})])
    embedder.run(documents=[Document(content="x", meta={"title": "one", "page": 2})])
    assert len(embedder.embedder.seen) == 1
    embedder.run(documents=[Document(content="x", meta={"title": "two", "page": 1})])
    assert embedder.embedder.seen[1:] == [["two|x"]]


def test_batch_size_is_no_part_of_the_model_and_a_prefix_is(config: CacheConfig) -> None:
    CachedDocumentEmbedder(CountingEmbedder(), config).run(documents=[Document(content="x")])
    other = CachedDocumentEmbedder(CountingEmbedder(batch_size=1), config)
    assert other.run(documents=[Document(content="x")])["meta"]["mmcache"]["hits"] == 1
    prefixed = CachedDocumentEmbedder(CountingEmbedder(prefix="passage: "), config)
    assert prefixed.run(documents=[Document(content="x")])["meta"]["mmcache"]["hits"] == 0


def test_what_could_not_be_embedded_is_not_kept_and_others_are(embedder: CachedDocumentEmbedder) -> None:
    embedder.embedder.fails = {"bad"}
    documents = [Document(content="good"), Document(content="bad"), Document(content="bad", meta={"again": 1})]
    first = embedder.run(documents=documents)
    assert [vector is None for vector in vectors(first)] == [False, True, True]
    assert [one.id for one in first["documents"]] == [one.id for one in documents]
    embedder.embedder.fails = set()
    assert None not in vectors(embedder.run(documents=documents))
    assert ["good"] not in embedder.embedder.seen[1:]


def test_an_embedding_of_before_is_not_taken_for_a_new_one(embedder: CachedDocumentEmbedder) -> None:
    embedder.embedder.fails = {"bad"}
    old = Document(content="bad", embedding=[9.0, 9.0])
    assert vectors(embedder.run(documents=[old])) == [[9.0, 9.0]]
    embedder.embedder.fails = set()
    assert vectors(embedder.run(documents=[Document(content="bad")])) != [[9.0, 9.0]]


def test_two_documents_of_one_id_each_get_their_own_embedding(embedder: CachedDocumentEmbedder) -> None:
    twins = [Document(id="same", content="a"), Document(id="same", content="bbbb")]
    made = vectors(embedder.run(documents=twins))
    assert made == [[1.0, 97.0], [4.0, 392.0]]
    assert vectors(embedder.run(documents=twins[::-1])) == made[::-1]


def test_what_has_no_canonical_bytes_is_embedded_every_time(config: CacheConfig) -> None:
    embedder = CachedDocumentEmbedder(CountingEmbedder(meta_fields_to_embed=["when"]), config)
    odd = Document(content="x", meta={"when": Path("no value of JSON")})
    for _ in range(2):
        assert embedder.run(documents=[odd, Document(content="y")])["documents"][0].embedding is not None
    assert embedder.embedder.seen[1:] == [[f"{odd.meta['when']}|x"], [f"{odd.meta['when']}|x"]]


def test_what_the_embedder_raises_is_raised_and_not_kept(config: CacheConfig) -> None:
    embedder = CachedDocumentEmbedder(MockDocumentEmbedder(dimension=2), config)
    for _ in range(2):
        with pytest.raises(TypeError, match="list of Documents"):
            embedder.run(documents="no list")


def test_a_model_that_nothing_names_needs_a_signature(config: CacheConfig) -> None:
    with pytest.raises(UnversionedModelError, match="signature="):
        CachedDocumentEmbedder(CountingEmbedder(model=""), config)
    assert CachedDocumentEmbedder(CountingEmbedder(model=""), config, signature="mine 1")
    headers = OpenAITextEmbedder(api_key=Secret.from_token("k"), http_client_kwargs={"headers": {"x-model": "b"}})
    with pytest.raises(UnversionedModelError):
        CachedTextEmbedder(headers, config)


def test_a_parameter_that_nobody_can_tell_needs_a_signature(config: CacheConfig) -> None:
    @component
    class Hiding:
        def __init__(self, model: str = "hiding 1", prefix: str = "") -> None:
            self.model, self._prefix = model, prefix  # Haystack would take the default for it

        @component.output_types(embedding=list[float])  # type: ignore[untyped-decorator]
        def run(self, text: str) -> dict[str, Any]:
            return {"embedding": [float(len(self._prefix + text))]}

    class Lowering(MockTextEmbedder):  # type: ignore[misc]
        def __init__(self, lower: bool = True) -> None:  # of which the inherited to_dict knows nothing
            super().__init__()
            self.lower = lower

    with pytest.raises(UnversionedModelError, match="prefix"):
        CachedTextEmbedder(Hiding(), config)
    with pytest.raises(UnversionedModelError, match="lower"):
        CachedTextEmbedder(Lowering(), config)
    named = CachedTextEmbedder(Hiding(prefix="q: "), config, signature="hiding 1, q")
    assert named._signed.parameters == {"model": "hiding 1"}
    before = named._signed.now()
    assert named.run(text="x") == named.run(text="x") == {"embedding": [4.0]}
    assert named._signed.now() == before
    assert "prefix" not in named._signed.parameters  # what it says of that is never believed


def test_api_keys_are_no_part_of_a_key(config: CacheConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "a-secret")
    one = CachedTextEmbedder(OpenAITextEmbedder(api_key=Secret.from_env_var("ONE")), config)
    two = CachedTextEmbedder(OpenAITextEmbedder(api_key=Secret.from_env_var("TWO", strict=False)), config)
    assert one._signed.now() == two._signed.now()
    assert "a-secret" not in str(one.to_dict())
    assert "ONE" not in str(one._signed.now())


def test_a_cache_that_cannot_be_opened_costs_nothing_but_speed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    embedder = CachedTextEmbedder(MockTextEmbedder(dimension=4), CacheConfig(root=str(tmp_path / "file")))
    for _ in range(2):
        assert embedder.run(text="x")["embedding"] == MockTextEmbedder(dimension=4).run("x")["embedding"]


def test_a_cache_that_was_closed_under_it_costs_nothing_but_speed() -> None:
    cache = Cache(memory="1MiB")
    embedder = CachedTextEmbedder(MockTextEmbedder(dimension=4), cache)
    documents = CachedDocumentEmbedder(CountingEmbedder(), cache)
    cache.close()
    assert len(embedder.run(text="x")["embedding"]) == 4
    assert documents.run(documents=[Document(content="a")])["documents"][0].embedding == [1.0, 97.0]
    with pytest.raises(SerializationError, match="CacheConfig"):
        embedder.to_dict()


def test_a_pipeline_goes_to_yaml_and_back(config: CacheConfig) -> None:
    pipeline = Pipeline()
    pipeline.add_component("text", CachedTextEmbedder(MockTextEmbedder(dimension=4), config, tenant="t", ttl=60.0))
    pipeline.add_component("documents", CachedDocumentEmbedder(MockDocumentEmbedder(dimension=4), config))
    first = pipeline.run({"text": {"text": "x"}, "documents": {"documents": [Document(content="x")]}})
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["mmcache.*"])
    assert again == pipeline
    second = again.run({"text": {"text": "x"}, "documents": {"documents": [Document(content="x")]}})
    assert second["text"]["embedding"] == first["text"]["embedding"]
    assert second["text"]["meta"]["mmcache"]["hit"]
    assert second["documents"]["meta"]["mmcache"] == {"hits": 1, "misses": 0}
    pipeline.close()
    again.close()


async def test_the_async_twins_use_the_embedder_s_own(config: CacheConfig) -> None:
    calls = []

    @component
    class Slow:
        def __init__(self, model: str = "slow 1") -> None:
            self.model = model

        @component.output_types(embedding=list[float])  # type: ignore[untyped-decorator]
        def run(self, text: str) -> dict[str, Any]:
            raise AssertionError("its run_async is to be called")

        @component.output_types(embedding=list[float])  # type: ignore[untyped-decorator]
        async def run_async(self, text: str) -> dict[str, Any]:
            calls.append(text)
            await asyncio.sleep(0)
            return {"embedding": [1.0, 0.1]}

    embedder = CachedTextEmbedder(Slow(), config)
    found = await asyncio.gather(*[embedder.run_async(text="x") for _ in range(5)])
    assert found == [{"embedding": [1.0, 0.1]}] * 5
    assert calls == ["x"]
    await embedder.close_async()


def test_pictures_count_by_their_bytes(config: CacheConfig, tmp_path: Path) -> None:
    @component
    class Seeing:
        def __init__(self, model: str = "see 1", file_path_meta_field: str = "file_path", root_path: str = "") -> None:
            self.model, self.file_path_meta_field, self.root_path = model, file_path_meta_field, root_path
            self.seen: list[str] = []

        @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
        def run(self, documents: list[Document]) -> dict[str, Any]:
            made = []
            for one in documents:
                data = (Path(self.root_path) / one.meta["file_path"]).read_bytes()
                self.seen.append(one.meta["file_path"])
                source = {"type": "image", "file_path_meta_field": "file_path"}
                made.append(replace(one, embedding=[float(sum(data))], meta={**one.meta, "embedding_source": source}))
            return {"documents": made}

    for name, data in (("a.png", b"abc"), ("b.png", b"abc"), ("c.png", b"xyz")):
        (tmp_path / name).write_bytes(data)
    embedder = CachedDocumentEmbedder(Seeing(root_path=str(tmp_path)), config)
    first = embedder.run(documents=[Document(meta={"file_path": "a.png"})])
    other = embedder.run(documents=[Document(meta={"file_path": name, "x": 1}) for name in ("b.png", "c.png")])
    assert embedder.embedder.seen == ["a.png", "c.png"]
    assert other["documents"][0].embedding == first["documents"][0].embedding == [294.0]
    assert other["documents"][0].meta["embedding_source"]["type"] == "image"
    assert other["documents"][0].meta["file_path"] == "b.png"
    (tmp_path / "a.png").write_bytes(b"new")
    assert embedder.run(documents=[Document(meta={"file_path": "a.png"})])["documents"][0].embedding != [294.0]
    one_page = [Document(meta={"file_path": "c.png", "page_number": n}) for n in (1, 2)]
    assert embedder.run(documents=one_page)
    assert len(embedder.embedder.seen) == 5


def test_pictures_may_count_by_their_pixels(config: CacheConfig, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")

    @component
    class Seeing:
        def __init__(self, model: str = "see 2", file_path_meta_field: str = "file_path") -> None:
            self.model, self.file_path_meta_field = model, file_path_meta_field
            self.seen: list[str] = []

        @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
        def run(self, documents: list[Document]) -> dict[str, Any]:
            self.seen += [one.meta["file_path"] for one in documents]
            pixels = [image.open(one.meta["file_path"]).convert("RGB").getpixel((0, 0)) for one in documents]
            return {
                "documents": [
                    replace(one, embedding=[float(v) for v in p]) for one, p in zip(documents, pixels, strict=True)
                ]
            }

    picture = image.new("RGB", (8, 4), (1, 2, 3))
    picture.putpixel((0, 0), (9, 8, 7))
    for name in ("a.png", "b.bmp"):
        picture.save(tmp_path / name)
    exif = image.Exif()
    exif[0x0112] = 3  # upside down
    picture.transpose(image.Transpose.ROTATE_180).save(tmp_path / "turned.png", exif=exif)
    (tmp_path / "odd.png").write_bytes(b"no picture")
    embedder = CachedDocumentEmbedder(Seeing(), config, pictures="pixels")
    names = ["a.png", "b.bmp", "turned.png"]
    documents = [Document(meta={"file_path": str(tmp_path / name), "n": n}) for n, name in enumerate(names)]
    made = embedder.run(documents=documents)["documents"]
    assert len(embedder.embedder.seen) == 1
    assert [one.embedding for one in made] == [[9.0, 8.0, 7.0]] * 3
    assert [one.meta for one in made] == [one.meta for one in documents]
    assert not Path(embedder.embedder.seen[0]).exists()
    assert embedder.run(documents=documents[1:])["documents"] == made[1:]
    assert len(embedder.embedder.seen) == 1
    plain = CachedDocumentEmbedder(Seeing(), config)  # files as they are: another key
    assert plain.run(documents=documents)["documents"][2].embedding == [1.0, 2.0, 3.0]
    assert plain.embedder.seen == [one.meta["file_path"] for one in documents]
    paged = [Document(meta=documents[0].meta | {"page_number": 1})]
    embedder.run(documents=paged)
    assert embedder.embedder.seen[1:] == [documents[0].meta["file_path"]]
    with pytest.raises(OSError, match="cannot identify"):
        embedder.run(documents=[Document(meta={"file_path": str(tmp_path / "odd.png")})])
    with pytest.raises(SettingsError):
        CachedDocumentEmbedder(Seeing(), config, pictures="likeness")  # type: ignore[arg-type]


def test_a_blob_is_part_of_the_key(embedder: CachedDocumentEmbedder) -> None:
    for data in (b"a", b"b"):
        embedder.run(documents=[Document(content="x", blob=ByteStream(data))])
    assert len(embedder.embedder.seen) == 2


def test_components_of_one_process_share_one_cache(config: CacheConfig, tmp_path: Path) -> None:
    lease, other = config.open(), CacheConfig(root=str(tmp_path / "cache"), memory="16MiB", tenant="b").open()
    assert lease.cache is other.cache
    with pytest.raises(SettingsError, match="other settings"):
        CacheConfig(root=str(tmp_path / "cache"), memory="32MiB").open()
    lease.release()
    lease.release()
    assert other.cache.stats()
    other.release()
    with pytest.raises(MMCacheError):
        other.cache.stats()


def test_passwords_stand_in_no_pipeline_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="password"):
        CacheConfig(shared="valkey://user:word@host:6379")
    secret = CacheConfig(shared=Secret.from_env_var("SHARED"), secret=Secret.from_env_var("SALT"))
    assert CacheConfig.from_dict(secret.to_dict()) == secret
    with pytest.raises(SettingsError):
        CacheConfig(secret="plain")
    with pytest.raises(SettingsError):
        CacheConfig(memory="much")
    monkeypatch.setenv("SALT", "ab" * 31)
    with pytest.raises(SettingsError, match="64"):
        CacheConfig(secret=Secret.from_env_var("SALT")).open()
