"""The door of LangChain: answers of models. And what LangChain's own keys do not say."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

pytest.importorskip("langchain_core", reason="needs langchain-core")

from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import LLM, BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult, Generation
from langchain_core.prompts import ChatPromptTemplate

from mmcache import Cache
from mmcache.integrations.langchain import MMCache, from_config
from mmcache.integrations.langchain.answers import answers_of, text_of
from mmcache.integrations.langchain.asked import by_pixels, deterministic, why_not
from mmcache.model.errors import SettingsError

RAN: list[Any] = []
USAGE = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
CALL = {"name": "look", "args": {"at": [1, {"deep": None}]}, "id": "c1", "type": "tool_call"}


@pytest.fixture(autouse=True)
def _nothing_ran() -> Iterator[None]:
    RAN.clear()
    yield
    set_llm_cache(None)


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache() as cache:
        yield cache


class Nameless(BaseChatModel):  # type: ignore[misc]
    """Says of itself what LangChain makes of it: the name of its class."""

    model: str = "toy-1"
    temperature: float = 0.0
    metadata_of_answer: dict[str, Any] = {"finish_reason": "stop"}  # noqa: RUF012 - pydantic copies it
    calls: list[Any] = []  # noqa: RUF012

    @property
    def _llm_type(self) -> str:
        return "toy"

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
        RAN.append(messages)
        message = AIMessage(
            content=f"{self.model} {len(RAN)}", usage_metadata=USAGE, tool_calls=self.calls,
            response_metadata=self.metadata_of_answer,
        )  # fmt: skip
        return ChatResult(generations=[ChatGeneration(message=message)])


class Chat(Nameless):
    """Says which it is."""

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model, "temperature": self.temperature}


class Plain(LLM):  # type: ignore[misc]
    @property
    def _llm_type(self) -> str:
        return "plain"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": "plain-1"}

    def _call(self, prompt: str, stop: Any = None, run_manager: Any = None, **options: Any) -> str:
        RAN.append(prompt)
        return f"to {prompt}"


def picture(kind: str = "PNG", **options: Any) -> str:
    file = BytesIO()
    Image.radial_gradient("L").resize((16, 12)).convert("RGB").save(file, kind, **options)
    return base64.b64encode(file.getvalue()).decode()


def shown(url: str, text: str = "what is it?") -> list[BaseMessage]:
    return [HumanMessage(content=[{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}])]


def test_an_answer_is_computed_once_with_all_that_is_in_it(cache: Cache) -> None:
    set_llm_cache(MMCache(cache))
    model = Chat(calls=[CALL])
    first, second = model.invoke("hello"), model.invoke("hello")
    assert len(RAN) == 1
    assert second.content == first.content
    assert second.tool_calls == [CALL]
    assert second.response_metadata == first.response_metadata
    assert second.usage_metadata == {**USAGE, "total_cost": 0}  # as LangChain says of every hit
    assert asyncio.run(model.ainvoke("hello")).content == first.content
    assert len(RAN) == 1
    second.content = "written to"
    assert model.invoke("hello").content == first.content
    assert Plain().invoke("p") == Plain().invoke("p") == "to p"
    assert len(RAN) == 2
    assert cache.stats().saved_seconds > 0


def test_langchain_own_cache_hands_out_what_callers_wrote_to(cache: Cache) -> None:
    own = InMemoryCache()
    own.update("p", "model", [ChatGeneration(message=AIMessage(content="right"))])
    own.lookup("p", "model")[0].message.content = "wrong"
    assert own.lookup("p", "model")[0].message.content == "wrong"
    ours = MMCache(cache, signature="m")
    ours.update("p", "model", [ChatGeneration(message=AIMessage(content="right"))])
    for _ in range(2):
        found = ours.lookup("p", "model")
        assert found is not None
        assert found[0].message.content == "right"
        found[0].message.content = "wrong"


def test_it_survives_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with Cache(tmp_path) as cache:
            assert Chat(cache=MMCache(cache)).invoke("hello").content == "toy-1 1"
    assert len(RAN) == 1


@pytest.mark.parametrize(
    ("other", "options"),
    [
        (Chat(model="toy-2"), {}), (Chat(temperature=0.5), {}), (Chat(), {"stop": ["x"]}), (Chat(), {"top_p": 0.5}),
        (Chat().bind(tools=[{"type": "function", "function": {"name": "f"}}]), {}),
        (Chat(), {"response_format": {"type": "json_object"}}), (Chat(), {"n": 2}), (Chat(), {"logprobs": True}),
    ],
    ids=str,
)  # fmt: skip
def test_any_other_model_or_parameter_is_another_answer(cache: Cache, other: Any, options: dict[str, Any]) -> None:
    set_llm_cache(MMCache(cache))
    Chat().invoke("hello")
    other.invoke("hello", **options)
    assert len(RAN) == 2


def test_messages_are_compared_whole(cache: Cache) -> None:
    model = Chat(cache=MMCache(cache))
    asked: list[Any] = [
        "hello", "Hello", [SystemMessage("hello")], [HumanMessage("hello", name="eve")],
        [HumanMessage("hel"), HumanMessage("lo")], [HumanMessage([{"type": "text", "text": "hello"}])],
        shown(f"data:image/png;base64,{picture()}"), shown(f"data:image/png;base64,{picture()}", "what is that?"),
    ]  # fmt: skip
    for messages in asked * 2:
        model.invoke(messages)
    assert len(RAN) == len(asked)


def test_a_model_that_does_not_say_which_it_is_is_passed_by(cache: Cache) -> None:
    """LangChain's own key of two such models is the same: whichever was asked first answers for both."""
    one, other = Nameless(model="toy-1"), Nameless(model="toy-2", temperature=1.0)
    assert one._get_llm_string() == other._get_llm_string()
    ours = MMCache(cache)
    set_llm_cache(ours)
    for _ in range(2):
        assert one.invoke("hello").content.startswith("toy-1")
        assert other.invoke("hello").content.startswith("toy-2")
    assert ours.bypassed == {"unnamed-model": 4}
    named = [Nameless(model=name, cache=MMCache(cache, signature=name)) for name in ("toy-1", "toy-2")]
    RAN.clear()
    for _ in range(2):
        assert [model.invoke("hello").content[:5] for model in named] == ["toy-1", "toy-2"]
    assert len(RAN) == 2


class Answer:
    """A class that is a parameter: LangChain's key has its name, and nothing that is in it."""


@pytest.mark.parametrize("value", [Answer, Answer(), len, lambda: None], ids=["class", "object", "builtin", "lambda"])
def test_parameters_without_content_are_passed_by(cache: Cache, value: Any) -> None:
    ours = MMCache(cache)
    model = Chat(cache=ours)
    for _ in range(2):
        model.invoke("hello", response_format=value)
    assert len(RAN) == 2
    assert ours.bypassed == {"parameters": 2}


def test_media_behind_an_address_are_passed_by(cache: Cache) -> None:
    ours = MMCache(cache)
    model = Chat(cache=ours)
    remote: list[Any] = [
        shown("https://example.com/cat.png"),
        shown("gs://bucket/cat.png"),
        [HumanMessage([{"type": "image", "source_type": "url", "url": "http://example.com/a"}])],
        [HumanMessage([{"type": "image", "url": "https://example.com/a"}])],
        [HumanMessage([{"type": "video", "url": "file:///tmp/a.mp4"}])],
        [HumanMessage([{"type": "image_url", "image_url": {"url": "pictures/cat.png"}}])],
        [HumanMessage([{"type": "image", "path": "/tmp/cat"}])],
        [HumanMessage([{"type": "media", "file_uri": "gs://bucket/cat"}])],
        [HumanMessage([{"type": "input_image", "image_url": "https://example.com/a"}])],
        [HumanMessage([{"type": "tool_result", "content": [{"type": "image", "source": {"url": "https://e.com/a"}}]}])],
    ]
    for messages in remote * 2:
        model.invoke(messages)
    assert len(RAN) == len(remote) * 2
    assert ours.bypassed == {"remote-media": len(remote) * 2}
    RAN.clear()
    said = [HumanMessage([{"type": "text", "text": "see https://example.com/cat.png"}])]
    for messages in (said, said, "https://example.com", "https://example.com"):
        model.invoke(messages)
    assert len(RAN) == 2
    trusting = Chat(cache=MMCache(cache, remote_media=True))
    for messages in remote * 2:
        trusting.invoke(messages)
    assert len(RAN) == 2 + len(remote)


def test_pictures_by_pixels_where_that_is_asked_for(cache: Cache) -> None:
    png, bmp = (shown(f"data:image/{kind};base64,{picture(kind)}") for kind in ("png", "bmp"))
    blocks = [
        [HumanMessage([{"type": "image", "base64": picture(kind), "mime_type": "image/x"}])] for kind in ("png", "bmp")
    ]
    exact, pixels = Chat(cache=MMCache(cache)), Chat(cache=MMCache(cache, pictures="pixels"))
    for messages in (png, bmp):
        exact.invoke(messages)
    assert len(RAN) == 2
    for messages in (png, bmp, *blocks):
        pixels.invoke(messages)
    assert len(RAN) == 4
    broken = "data:image/png;base64,AAAA"
    for url in (broken, broken, "data:image/png;base64,AAAB"):
        pixels.invoke(shown(url))
    assert len(RAN) == 6


def test_text_that_looks_like_a_picture_of_ours_is_text() -> None:
    prompt = '[{"lc": 1, "type": "constructor", "kwargs": {"content": "picture 00"}}]'
    assert "picture 00" in by_pixels(prompt, lambda raw: "never")
    assert by_pixels("plain data:image/png;base64,AAAA", lambda raw: "never").startswith("plain")


@pytest.mark.parametrize(
    "metadata",
    [
        {"finish_reason": "length"}, {"finish_reason": "content_filter"}, {"stop_reason": "max_tokens"},
        {"finish_reason": "SAFETY"}, {"done_reason": "load"}, {"finish_reason": "something new"},
        {"finish_reason": "stop", "odd": (1, 2)}, {"finish_reason": "stop", "odd": object()},
    ],
)  # fmt: skip
def test_what_is_cut_off_filtered_or_not_the_same_afterwards_is_not_kept(cache: Cache, metadata: Any) -> None:
    model = Chat(cache=MMCache(cache), metadata_of_answer=metadata)
    for _ in range(2):
        model.invoke("hello")
    assert len(RAN) == 2


@pytest.mark.parametrize("reason", ["stop", "end_turn", "tool_use", "STOP", "FinishReason.STOP", None])
def test_whole_answers_are_kept(reason: str | None) -> None:
    answer = [ChatGeneration(message=AIMessage(content="a", response_metadata={"finish_reason": reason}))]
    assert answers_of(text_of(answer)) == answer


def test_what_is_no_answer_is_not_kept(cache: Cache) -> None:
    ours = MMCache(cache, signature="m")
    broken = {"name": "f", "args": "{", "id": "1", "error": "e", "type": "invalid_tool_call"}
    for answer in (
        [], [Generation(text="")], [ChatGeneration(message=AIMessage(content=""))],
        [ChatGeneration(message=AIMessage(content="a", invalid_tool_calls=[broken]))],
    ):  # fmt: skip
        ours.update("p", "llm", answer)
        assert ours.lookup("p", "llm") is None


def test_only_deterministic_calls_where_that_is_asked_for(cache: Cache) -> None:
    ours = MMCache(cache, deterministic_only=True)
    for model, times in ((Chat(), 1), (Chat(temperature=0.7), 2)):
        RAN.clear()
        model.cache = ours
        for _ in range(2):
            model.invoke("hello")
        assert len(RAN) == times
    RAN.clear()
    for _ in range(2):
        Chat(temperature=0.7, cache=ours).invoke("hello", seed=3)
    assert len(RAN) == 1
    assert deterministic("{\"kwargs\": {\"temperature\": 0.5}}---[('temperature', 0), ('stop', None)]")
    assert not deterministic("{\"kwargs\": {\"temperature\": 0}}---[('temperature', 1), ('stop', None)]")
    assert not deterministic("[('model', 'm')]")
    assert not deterministic("[('temperature', None), ('seed', None)]")


def test_objects_inside_a_serialised_model_are_seen() -> None:
    llm = '{"lc": 1, "type": "constructor", "kwargs": {"model": "m", "x": {"lc": 1, "type": "not_implemented"}}}---[]'
    strict: dict[str, Any] = {"named": False, "deterministic_only": False, "remote_media": False}
    assert why_not("p", llm, **strict) == "parameters"
    prompt = '[{"lc": 1, "type": "constructor", "kwargs": {"x": {"lc": 1, "type": "not_implemented", "repr": "x"}}}]'
    assert why_not(prompt, '{"model": "m"}', **strict) == "message"
    assert why_not('say "type": "not_implemented"', '{"model": "m"}', **strict) == ""


def test_tenants_namespaces_and_clear_are_apart(cache: Cache) -> None:
    one, two = MMCache(cache, tenant="one"), MMCache(cache, tenant="two")
    key = cache.key("something else", modality="text", signature="s")
    cache.put(key, "stays")
    for ours in (one, two, MMCache(cache, namespace="three")):
        Chat(cache=ours).invoke("hello")
    assert len(RAN) == 3
    one.clear()
    Chat(cache=two).invoke("hello")
    assert len(RAN) == 3
    Chat(cache=one).invoke("hello")
    assert len(RAN) == 4
    assert cache.get(key) == "stays"
    asyncio.run(two.aclear())
    Chat(cache=two).invoke("hello")
    assert len(RAN) == 5


def test_clear_reaches_what_earlier_processes_left(tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        Chat(cache=MMCache(cache)).invoke("hello")
    with Cache(tmp_path) as cache:
        MMCache(cache).clear()
    with Cache(tmp_path) as cache:
        Chat(cache=MMCache(cache)).invoke("hello")
    assert len(RAN) == 2


def test_the_tenant_of_a_chain_is_in_its_configuration(cache: Cache) -> None:
    ours = MMCache(cache, tenant=from_config("who"))
    chain = ChatPromptTemplate.from_messages([("human", "{q}")]) | Chat(cache=ours)

    def ask(who: str | None) -> int:
        before = len(RAN)
        chain.invoke({"q": "hello"}, config={"configurable": {"who": who}} if who else {})
        return len(RAN) - before

    assert [ask("a"), ask("a"), ask("b"), ask("b"), ask(None), ask(None)] == [1, 0, 1, 0, 1, 1]
    assert ours.bypassed["tenant"] == 2  # what is not looked up is not kept either


def test_no_failure_of_the_cache_fails_a_call() -> None:
    cache = Cache()
    ours = MMCache(cache)
    cache.close()
    assert Chat(cache=ours).invoke("hello").content == "toy-1 1"
    assert Chat(cache=ours).invoke("\ud800").content == "toy-1 2"


def test_an_answer_of_another_release_is_a_miss(cache: Cache) -> None:
    ours = MMCache(cache)
    key = ours._key("p", "{'model': 'm'}", counted=False)
    assert key is not None
    for text in ("no json", '[{"kind": "Pickle"}]', '[{"kind": "ChatGeneration", "message": {"type": "x"}}]'):
        cache.put(key, text)
        assert ours.lookup("p", "{'model': 'm'}") is None


def test_the_wrong_things_are_refused(cache: Cache) -> None:
    for options in ({"pictures": "meaning"}, {"signature": ""}, {"ttl": -1}, {"tenant": 3}, {"namespace": ""}):
        with pytest.raises(SettingsError):
            MMCache(cache, **options)
