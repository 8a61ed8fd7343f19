"""By which way lookups of a framework's component come, as they are counted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from mmcache import Cache, attribution
from mmcache.attribution import UNKNOWN, attributed
from mmcache.integrations.framework.realm import Realm
from mmcache.integrations.framework.results import Results
from mmcache.integrations.framework.vectors import Vectors
from mmcache.integrations.framework.ways import by
from mmcache.keys.framing import framed
from mmcache.model.signature import Signature
from mmcache.stats import Asked
from mmcache.telemetry.counts import counts_of


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache(memory="8MiB") as cache:
        yield cache


def routes(cache: Cache) -> dict[str, int]:
    found: dict[str, int] = {}
    for labels, (count, _, _) in counts_of(cache).lookups().items():
        route = Asked(*labels).route
        found[route] = found.get(route, 0) + count
    return found


async def test_answers_count_for_the_door_that_asks(cache: Cache) -> None:
    results = Results(Realm(cache), "llamaindex answer 1", "v1", str, str)
    inside: list[str] = []

    def compute() -> str:
        inside.append(attribution.current().route)
        return "yes"

    async def acompute() -> str:
        return compute()

    one, two = (results.question(lambda: "facts", partial(framed, name)) for name in ("one", "two"))
    assert results.answer(one, compute).hit is False
    assert results.answer(one, compute).hit is True
    assert (await results.aanswer(two, acompute)).hit is False
    assert inside == ["llamaindex"] * 2
    assert routes(cache).keys() == {"llamaindex"}
    assert attribution.current() is UNKNOWN


async def test_vectors_too(cache: Cache) -> None:
    vectors = Vectors(Realm(cache), Signature("m 1", function="langchain query some.Model"), "text")

    async def acompute(texts: list[str]) -> list[list[float]]:
        return [[0.5] for _ in texts]

    assert vectors.many(["a"], lambda texts: [[0.5] for _ in texts])[1].misses == 1
    assert (await vectors.amany(["a", "b"], acompute))[1].hits == 1
    assert routes(cache) == {"langchain": 3}


def test_a_route_that_the_caller_has_named_holds(cache: Cache) -> None:
    vectors = Vectors(Realm(cache), Signature("m 1", function="llamaindex query some.Model"), "text")
    with attributed(route="/search", region="eu"):
        vectors.many(["a"], lambda texts: [[0.5] for _ in texts])
        assert attribution.current().route == "/search"
    with attributed(region="eu"), by("llamaindex"):
        assert (attribution.current().route, attribution.current().region) == ("llamaindex", "eu")
    assert routes(cache) == {"/search": 1}
