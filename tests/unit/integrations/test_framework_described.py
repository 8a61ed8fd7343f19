"""What of a component enters keys, and what does not."""

from __future__ import annotations

import json
import operator
import re
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache import UnversionedModelError
from mmcache.integrations.framework.described import described
from mmcache.integrations.framework.signing import signature_of


class Part:
    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


def first(text: str) -> str:
    return text[0]


def second(text: str) -> str:
    return text[1]


def bound(value: Any) -> Any:
    return lambda: value


DIFFERENT: list[tuple[Any, Any]] = [
    (1, 1.0), (1, True), (0.0, -0.0), ("1", 1), ((1,), [1]), (None, ""), ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (first, second), (bound(1), bound(2)), (partial(first, "a"), partial(first, "b")),
    (re.compile("a"), re.compile("b")), (re.compile("a"), re.compile("a", re.I)),
    (operator.itemgetter(1), operator.itemgetter(2)), (np.zeros(2), np.zeros(3)), (np.zeros(2), np.zeros(2, "f4")),
    (list(range(300)), list(range(1, 301))), ({str(n): n for n in range(300)}, {str(n): n + 1 for n in range(300)}),
    ({"key": "year"}, {"key": "month"}), ({"tags": ["p"]}, {"tags": ["h1"]}), ({"index": 1}, {"index": 2}),
    (Part(key="year"), Part(key="month")), (Part(tags=["p"]), Part(tags=["h1"])), (Part(index=1), Part(index=2)),
    (Part(_template="a"), Part(_template="b")), (Part(api_base="https://a"), Part(api_base="https://b")),
    (Part(max_tokens=1), Part(max_tokens=2)), (Part(eos_token="a"), Part(eos_token="b")),
    (Part(headers={"x-model": "a"}), Part(headers={"x-model": "b"})), (Path("a"), Path("b")), (b"a", b"b"),
]  # fmt: skip


@pytest.mark.parametrize("pair", DIFFERENT)
def test_what_differs_is_described_otherwise(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert described(one) != described(other)
    assert described(one) == described(one)
    assert described(Part(held=one)) != described(Part(held=other))


SAME: list[tuple[Any, Any]] = [
    (Part(api_key="sk-one"), Part(api_key="sk-two")), (Part(openai_api_key="a"), Part(openai_api_key="b")),
    (Part(_client=threading.Lock()), Part(_client=None)), (Part(timeout=1), Part(timeout=60)),
    (Part(headers={"Authorization": "a"}), Part(headers={"Authorization": "b"})), ({2, 1}, {1, 2}),
    (Part(lazy=None), Part()),
    (Part(template_vars=["a", "b"]), Part(template_vars=["b", "a"])),
    (Part(lock=threading.Lock()), Part(lock=threading.Lock())),
]  # fmt: skip


@pytest.mark.parametrize("pair", SAME)
def test_secrets_and_delivery_do_not_count(pair: tuple[Any, Any]) -> None:
    assert described(pair[0]) == described(pair[1])


def test_no_secret_is_in_it() -> None:
    part = Part(api_key="hush", password="hush", inner=Part(azure_ad_token="hush"), headers={"X-Api-Key": "hush"})
    assert "hush" not in described(part)


def test_a_structure_in_itself_ends_and_too_much_is_refused() -> None:
    part = Part()
    part.me = part  # type: ignore[attr-defined]
    assert json.loads(described(part))
    with pytest.raises(UnversionedModelError, match="signature="):
        described([[n] for n in range(30_000)])


def test_every_process_describes_it_alike() -> None:
    code = (
        "import re\nfrom mmcache.integrations.framework.described import described\n"
        "class A:\n    def f(self): return {1, 2}\n"
        "a = A(); a.x = {'b', 'a', 'c'}; a.y = lambda t: t + '!'; a.z = re.compile('x'); a.f2 = a.f\n"
        "print(described(a))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_a_class_of_ones_own_counts_by_its_code() -> None:
    def made(number: int) -> Any:
        space: dict[str, Any] = {"__name__": "mine"}
        source = f"class Own:\n    def run(self):\n        return {number}"
        exec(source, space)  # noqa: S102 - as somebody edits a class
        return space["Own"]()

    one, other = made(1), made(2)
    assert described(one) != described(other)


def test_models_are_named_or_refused() -> None:
    with pytest.raises(UnversionedModelError):
        signature_of(Part(model_name="unknown"), None, "role")
    named = signature_of(Part(model_name="m"), None, "role")
    assert named != signature_of(Part(model_name="n"), None, "role")
    assert named != signature_of(Part(model_name="m"), None, "other")
    assert signature_of(Part(x=1), "m 1", "role") != signature_of(Part(x=2), "m 1", "role")
