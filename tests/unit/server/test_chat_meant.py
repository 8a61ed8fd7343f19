"""Answers by meaning behind the proxy: only where a route has a budget, and never where a part is unknown."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image
from tests.unit.semantic.world import WORDINGS, meaning_of, semantic
from tests.unit.server.chat_world import CHAT, Scripted, World, completion, whole

from mmcache.model.errors import ProxyError
from mmcache.server.answers_stored import judge
from mmcache.server.chat import PATH, ROUTES
from mmcache.server.config import RouteRules, ServerSettings
from mmcache.server.meant import semantic_for

ONE, OTHER, THIRD = WORDINGS["animal"]
NEAR = RouteRules(semantic_max_error=0.1)


def about(text: Any, system: str = "Be short.", **changes: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return CHAT | {"messages": messages} | changes


@pytest.fixture
def world() -> Iterator[World]:
    def reply() -> Scripted:
        asked = json.loads(made.upstream.bodies[-1])
        return whole(completion(f"{meaning_of(asked['messages'][-1]['content'])}, says {len(made.upstream.bodies)}."))

    made = World(ROUTES["POST", PATH], PATH, reply, semantic=semantic(judge=judge))
    with made.cache:
        yield made


async def test_exact_hits_first_and_near_ones_once_trusted(world: World) -> None:
    told = lambda: whole(completion("The same to all."))  # noqa: E731 - so that every comparison comes out right
    world.upstream.reply = told
    assert (await world.read(about(ONE), rules=NEAR))[0] == "miss"
    assert (await world.read(about(ONE), rules=NEAR))[0] == "hit"
    for number in range(400):
        await world.read(about(ONE, f"Case {number}."), rules=NEAR)
        await world.read(about(OTHER, f"Case {number}."), rules=NEAR)
    found = []
    for number in range(1000, 1020):
        await world.read(about(ONE, f"Case {number}."), rules=NEAR)
        found.append(await world.ask(about(OTHER, f"Case {number}."), rules=NEAR))
    near = [answered for answered in found if "near" in answered.verdict.details]
    assert len(near) > 10
    assert all(answered.verdict.outcome == "hit" and answered.model == "llava" for answered in near)
    assert 0.9 <= float(near[0].verdict.details["near"]) <= 1
    # Another route, with no budget or a smaller one, is not given it.
    asked = about(OTHER, "Case 5000.")
    await world.read(about(ONE, "Case 5000."), rules=NEAR)
    assert (await world.read(asked))[0] == "miss absent"
    assert (await world.read(asked, rules=RouteRules(semantic_max_error=0.01)))[0] == "hit"  # stored exactly by then
    # Nor is who asks with another seed: all but the words must be equal.
    assert (await world.ask(asked | {"seed": 5}, rules=NEAR)).verdict.outcome == "miss"


async def test_what_is_not_whole_is_not_kept_here_either(world: World) -> None:
    world.upstream.reply = lambda: whole(completion(ended="length"))
    for _ in range(2):
        answered = await world.ask(about(ONE), rules=NEAR)
        assert (answered.verdict.outcome, answered.verdict.details["kept"]) == ("miss", "truncated")


async def test_directives_here_too(world: World) -> None:
    with pytest.raises(ProxyError, match="only-if-cached"):
        await world.ask(about(ONE), rules=NEAR, only_if_cached=True)
    assert world.upstream.calls == 0
    await world.read(about(ONE), rules=NEAR)
    assert (await world.ask(about(ONE), rules=NEAR, only_if_cached=True)).verdict.outcome == "hit"
    world.clock.advance(10)
    assert (await world.ask(about(ONE), rules=NEAR, max_age=20)).verdict.age_seconds == 10
    assert (await world.ask(about(ONE), rules=NEAR, max_age=5)).verdict.outcome == "miss"
    assert (await world.ask(about(ONE), rules=NEAR, no_cache=True)).verdict.outcome == "miss"
    assert world.upstream.calls == 3


async def test_prompts_of_unknown_parts_are_answered_exactly(world: World) -> None:
    """The last message is not the user's: no prompt, but still the very same request."""
    asked = CHAT | {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "A"}]}
    assert (await world.read(asked, rules=NEAR))[0] == "miss absent"
    assert (await world.read(asked, rules=NEAR))[0] == "hit"


async def test_pictures_are_seen_whatever_they_came_as(world: World) -> None:
    def asked(form: str, shade: int, **detail: str) -> dict[str, Any]:
        image = Image.new("RGB", (16, 12), (200, shade, 40))
        image.save(written := io.BytesIO(), form)
        url = f"data:image/{form.lower()};base64,{base64.b64encode(written.getvalue()).decode()}"
        parts = [{"type": "text", "text": ONE}, {"type": "image_url", "image_url": {"url": url} | detail}]
        return CHAT | {"messages": [{"role": "user", "content": parts}]}

    world.upstream.reply = lambda: whole(completion())
    assert (await world.read(asked("PNG", 0), rules=NEAR))[0] == "miss"
    assert (await world.read(asked("BMP", 0), rules=NEAR))[0] == "hit"
    assert (await world.read(asked("PNG", 90), rules=NEAR))[0] == "miss"
    for outcome in "miss absent", "hit":  # `detail` makes the prompt unknown, and the request no less known
        assert (await world.read(asked("PNG", 0, detail="low"), rules=NEAR))[0] == outcome


def test_one_promise_for_all_routes() -> None:
    def settings(**budgets: float | None) -> ServerSettings:
        rules = {f"/v1/{name}": RouteRules(semantic_max_error=budget) for name, budget in budgets.items()}
        return ServerSettings("http://upstream", routes=rules)

    assert semantic_for(settings()) is None
    assert semantic_for(settings(a=None)) is None
    found = semantic_for(settings(a=0.05, b=0.02, c=None))
    assert found is not None
    assert found.max_error == 0.02
    assert (semantic_for(settings(a=0.5)) or semantic()).max_error == 0.2


def pictured(save: str, **options: Any) -> dict[str, Any]:
    """A question about one picture, in a file of that format."""
    picture = Image.linear_gradient("L").resize((24, 24)).convert("RGB")
    file = io.BytesIO()
    picture.save(file, save, **options)
    url = f"data:image/{save.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
    told = [{"type": "text", "text": ONE}, {"type": "image_url", "image_url": {"url": url}}]
    return CHAT | {"messages": [{"role": "user", "content": told}]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pictured("PNG"), pictured("WEBP", lossless=True)),
        (pictured("PNG"), pictured("TIFF")),
        (about(ONE), about([{"type": "text", "text": ONE}])),
        (about("what col\u00f6r?"), about("what colo\u0308r?")),
    ],
    ids=["webp", "tiff", "list", "unicode"],
)  # fmt: skip
async def test_what_a_server_might_tell_apart_is_not_the_very_same(
    world: World, first: dict[str, Any], second: dict[str, Any]
) -> None:
    world.upstream.reply = lambda: whole(completion(f"Answer {world.upstream.calls}."))
    answers = []
    for asked in (first, second, first, second):
        outcome, body = (found := await world.ask(asked, rules=NEAR)).verdict.outcome, found.body
        await world.idle()
        answers.append((outcome, body))
    assert [outcome for outcome, _ in answers] == ["miss", "miss", "hit", "hit"]
    assert answers[0][1] != answers[1][1]
    assert answers[:2] == [("miss", answers[2][1]), ("miss", answers[3][1])]


async def test_other_spellings_of_one_request_hit_here_too(world: World) -> None:
    await world.read(about(ONE), rules=NEAR)
    for spelt in ({"n": 1}, {"stop": None}, {"user": "u"}, {"temperature": 0.0}):
        assert (await world.read(about(ONE, **spelt), rules=NEAR))[0] == "hit"
