"""One stream of chat requests about easy-VQA's pictures: repeats, and all that looks like a repeat or hides one."""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from PIL import Image

from mmcache.lab.data.picture_questions import COLOURS, SHAPES, asked, kind
from mmcache.lab.data.pictures import shapes

Tenant = Literal["sk-tenant-one", "sk-tenant-two"]
ONE: Tenant = "sk-tenant-one"
TWO: Tenant = "sk-tenant-two"
QUALITY = 90
EXPONENT = 1.0
REPEATS = 0.3
"""The share of the plain request; the rest is divided evenly among the other families."""


@dataclass(frozen=True)
class Base:
    """A question about a picture, and what may be asked in its place."""

    picture: int
    question: str
    reworded: str
    """The same in other words."""
    unlike: str
    """Another question about the same picture."""
    other: int
    """Another picture."""


@dataclass(frozen=True)
class Request:
    """One request of the stream."""

    family: str
    body: dict[str, Any] = field(repr=False)
    tenant: Tenant
    meaning: tuple[Any, ...]
    """Equal for requests that mean the same, however they are written: what a perfect cache would go by."""


Make = Callable[[Base, random.Random], tuple[dict[str, Any], tuple[Any, ...]]]
"""(body, what differs in meaning from the plain request; () = nothing)."""


_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "WEBP": {"lossless": True}, "JPEG": {"quality": QUALITY}, "PNG": {"compress_level": 1}
}  # fmt: skip


@cache
def data_url(picture: int, form: str = "file") -> str:
    """A test picture: the package's own PNG, or encoded anew as `BMP`, `WEBP` (lossless), `PNG`, `JPEG`."""
    file = shapes("test")[picture]
    data, kind_ = file.read_bytes(), "PNG"
    if form != "file":
        out, kind_ = io.BytesIO(), form
        Image.open(file).convert("RGB").save(out, form, **_OPTIONS.get(form, {}))
        data = out.getvalue()
    return f"data:image/{kind_.lower()};base64,{base64.b64encode(data).decode()}"


def user(text: str, *urls: str) -> dict[str, Any]:
    """The user's message."""
    pictures = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"role": "user", "content": [{"type": "text", "text": text}, *pictures]}


def plain(base: Base, **changed: Any) -> dict[str, Any]:
    """The request as it is mostly asked."""
    message = user(base.question, data_url(base.picture))
    return {"model": "vqa-a", "messages": [message], "temperature": 0, "max_tokens": 64} | changed


def _spelled(base: Base, draw: random.Random) -> tuple[dict[str, Any], tuple[Any, ...]]:
    body = list(plain(base, n=1, stream=False, stop=None, user="somebody", temperature=0.0).items())
    draw.shuffle(body)
    content = [dict(reversed(part.items())) for part in plain(base)["messages"][0]["content"]]
    return dict(body) | {"messages": [{"content": content, "role": "user"}]}, ()


def _one_of(name: str, *choices: Mapping[str, Any]) -> Make:
    """Other fields, which make another answer."""

    def make(base: Base, draw: random.Random) -> tuple[dict[str, Any], tuple[Any, ...]]:
        place = draw.randrange(len(choices))
        return plain(base, **choices[place]), (name, place)

    return make


def _earlier(base: Base, draw: random.Random) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """What was said before: it counts, and here it names the language, or shows the picture."""
    language, picture = draw.choice(("French", "UPPERCASE")), draw.choice((base.picture, base.other))
    before = [user(f"From now on in {language}, please.", data_url(picture)), {"role": "assistant", "content": "Yes."}]
    return plain(base, messages=[*before, {"role": "user", "content": base.question}]), ("earlier", language, picture)


def _pair(base: Base, draw: random.Random) -> tuple[dict[str, Any], tuple[Any, ...]]:
    both = draw.choice(((base.picture, base.other), (base.other, base.picture)))
    return plain(base, messages=[user(base.question, *map(data_url, both))]), ("pair", both)


def _schema(name: str) -> dict[str, Any]:
    schema = {
        "type": "object", "properties": {name: {"type": "string"}}, "required": [name], "additionalProperties": False
    }  # fmt: skip
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}}


def _tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"answer": {"type": "string"}}}
    return {"tools": [{"type": "function", "function": {"name": name, "parameters": parameters}}]}


def _told(text: str) -> Make:
    return lambda base, _: (
        plain(base, messages=[{"role": "system", "content": text}, *plain(base)["messages"]]),
        ("system", text),
    )


def _seen(form: str) -> Make:
    return lambda base, _: (plain(base, messages=[user(base.question, data_url(base.picture, form))]), ())


SEEDS = ((1.0, 1), (1.0, 2), (0.5, 1))
OTHER_TENANT = "other tenant"
CHANCE = "left to chance"
FAMILIES: dict[str, Make] = {
    "plain": lambda base, _: (plain(base), ()),
    "spelled otherwise": _spelled,
    "defaults spelled out": lambda base, _: (plain(base, top_p=1, presence_penalty=0, frequency_penalty=0), ()),
    "lossless re-encoding": lambda base, draw: _seen(draw.choice(("BMP", "WEBP", "PNG")))(base, draw),
    "JPEG of it": _seen("JPEG"),
    "other words": lambda base, _: (plain(base, messages=[user(base.reworded, data_url(base.picture))]), ()),
    "other picture": lambda base, _: (
        plain(base, messages=[user(base.question, data_url(base.other))]),
        ("picture", base.other),
    ),
    "other question": lambda base, _: (
        plain(base, messages=[user(base.unlike, data_url(base.picture))]),
        ("question", base.unlike),
    ),
    "system prompt": lambda base, draw: _told(draw.choice(("Answer in French.", "UPPERCASE!", "Use JSON.")))(
        base, draw
    ),
    "other model": _one_of("model", {"model": "vqa-b"}),
    "shorter, or stopped": _one_of("cut", {"max_tokens": 2}, {"max_tokens": 3}, {"stop": ["is"]}, {"stop": ["."]}),
    "schema": _one_of("schema", _schema("answer"), _schema("colour"), {"response_format": {"type": "json_object"}}),
    "other seed": _one_of("seed", *({"temperature": heat, "seed": seed} for heat, seed in SEEDS)),
    "several choices": _one_of("n", {"n": 2, "temperature": 1.0, "seed": 7}, {"n": 3, "temperature": 1.0, "seed": 7}),
    "tools": _one_of("tools", _tool("tell"), _tool("report"), _tool("tell") | {"tool_choice": "none"}),
    "earlier turns": _earlier,
    "two pictures": _pair,
    "stream": lambda base, _: (plain(base, stream=True, stream_options={"include_usage": True}), ()),
    OTHER_TENANT: lambda base, _: (plain(base), ()),
    CHANCE: _one_of("chance", {"temperature": 1.0}),
}  # fmt: skip
"""By name. Requests of `left to chance` have no truth: nobody can say what is right there."""


def bases(draw: random.Random, count: int) -> list[Base]:
    """`count` questions, two for each of half as many pictures of easy-VQA's test set, with other wordings."""
    known: dict[int, list[str]] = {}
    for one in asked("test"):
        if reworded(one.question):
            known.setdefault(one.picture, []).append(one.question)
    usable = [number for number, questions in sorted(known.items()) if len(set(questions)) > 1]
    chosen = draw.sample(usable, (count + 1) // 2)
    found = []
    for place, picture in enumerate(chosen):
        first, second = draw.sample(sorted(set(known[picture])), 2)
        other = chosen[place - 1]
        found += [
            Base(picture, question, draw.choice(reworded(question)), unlike, other)
            for question, unlike in ((first, second), (second, first))
        ]
    return found[:count]


@cache
def reworded(question: str) -> tuple[str, ...]:
    """Other wordings of the data set that ask for the same."""

    def meant(text: str) -> tuple[str, ...]:
        words = text.rstrip("?").split()
        return (kind(text), *(word for word in words if word in (*SHAPES, *COLOURS)))

    texts = sorted({one.question for one in asked("test")})
    return tuple(text for text in texts if text != question and meant(text) == meant(question))


def stream(seed: int, count: int, pool: int) -> list[Request]:
    """`count` requests about `pool` questions, whose popularity follows Zipf's law."""
    draw = random.Random(seed)
    known = bases(draw, pool)
    weights = [1 / (rank + 1) ** EXPONENT for rank in range(pool)]
    names = list(FAMILIES)
    shares = [REPEATS, *[(1 - REPEATS) / (len(names) - 1)] * (len(names) - 1)]
    found = []
    for place, family in zip(
        draw.choices(range(pool), weights, k=count), draw.choices(names, shares, k=count), strict=True
    ):
        body, differs = FAMILIES[family](known[place], draw)
        tenant = TWO if family == OTHER_TENANT else ONE
        found.append(Request(family, body, tenant, (tenant, known[place].picture, known[place].question, *differs)))
    return found
