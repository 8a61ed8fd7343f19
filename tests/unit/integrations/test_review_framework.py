"""What a component's description must not miss: two that differ never look equal."""

from __future__ import annotations

import collections
import functools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache import Cache
from mmcache.integrations.framework.described import described
from mmcache.integrations.framework.extra import require
from mmcache.integrations.framework.realm import Realm
from mmcache.integrations.framework.signing import check_alone, signature_of
from mmcache.integrations.framework.steady import Steady
from mmcache.model.errors import UnversionedModelError


class Held:
    def __init__(self, part: Any) -> None:
        self.part = part


class Slotted:
    __slots__ = ("prefix",)


class Mixed(Slotted):
    def __init__(self, prefix: str) -> None:
        self.prefix, self.other = prefix, 1


class Wrapping:
    """Looks like the function that it wraps."""

    def __init__(self, function: Any, prefix: str) -> None:
        functools.update_wrapper(self, function)  # type: ignore[arg-type]
        self.prefix = prefix


def written(source: str, name: str) -> Any:
    """What somebody's script defines."""
    module: dict[str, Any] = {"__name__": "__main__"}
    exec(source, module)  # noqa: S102 - the sources stand below
    return module[name]


def same(text: str) -> str:
    return text


PAIRS = {
    "ufuncs": (Held(np.sin), Held(np.cos)),
    "deques": (Held(collections.deque([1])), Held(collections.deque([2]))),
    "arrays of objects": (Held(np.array([{"a": 1}], object)), Held(np.array([{"a": 2}], object))),
    "slots beside attributes": (Mixed("query: "), Mixed("passage: ")),
    "wrappers": (Wrapping(same, "query: "), Wrapping(same, "passage: ")),
    "constants of a class": (
        written("class E:\n    prefix = 'query: '", "E")(), written("class E:\n    prefix = 'passage: '", "E")(),
    ),
    "constants that a method reads": (
        written("P = 'query: '\nclass E:\n    def f(self, t): return P + t", "E")(),
        written("P = 'passage: '\nclass E:\n    def f(self, t): return P + t", "E")(),
    ),
    "functions that a method calls": (
        written("def g(t): return t + '1'\nclass E:\n    def f(self, t): return g(t)", "E")(),
        written("def g(t): return t + '2'\nclass E:\n    def f(self, t): return g(t)", "E")(),
    ),
    "classes as values": (
        Held(written("class E:\n    def f(self): return 1", "E")),
        Held(written("class E:\n    def f(self): return 2", "E")),
    ),
    "constants that a function reads": (
        written("P = 'query: '\ndef f(t): return P + t", "f"), written("P = 'passage: '\ndef f(t): return P + t", "f"),
    ),
    "functions that a function calls": (
        written("def g(t): return t + '1'\ndef f(t): return g(t)", "f"),
        written("def g(t): return t + '2'\ndef f(t): return g(t)", "f"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_what_differs_looks_different(pair: tuple[Any, Any]) -> None:
    assert described(pair[0]) != described(pair[1])


def test_what_a_function_collects_is_not_what_it_is() -> None:
    function = written("calls = []\ndef f(t):\n    calls.append(t)\n    return t", "f")
    before = described(function)
    function("x")
    assert described(function) == before


def test_a_client_made_from_the_environment_counts_by_its_address() -> None:
    openai = pytest.importorskip("openai")

    def client(address: str) -> Any:
        return openai.OpenAI(api_key="sk-never-told", base_url=address)

    one, other = Held(None), Held(None)
    one.client, other.client = client("http://one/v1"), client("http://other/v1")  # type: ignore[attr-defined]
    assert described(one) != described(other)
    assert "sk-never-told" not in described(one)
    one.api_base = other.api_base = "http://said/v1"  # type: ignore[attr-defined]
    assert described(one) == described(other)  # where it is said, a client that is made late changes nothing


def test_tokens_of_any_framework_stay_out() -> None:
    class Secret:
        def __init__(self, token: str) -> None:
            self.token_text = token

        def resolve_value(self) -> str:
            return self.token_text

    assert "sk-1" not in described(Held(Secret("sk-1")))


class Folder:
    def __init__(self, path: Path) -> None:
        self.model_name = str(path)


def test_a_model_that_was_trained_and_saved_again_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"first weights")
    first = signature_of(Folder(path), None, "test")
    path.write_bytes(b"other weights")
    assert signature_of(Folder(path), None, "test") != first


def test_a_module_that_was_trained_is_another_one() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 2)
    before = described(Held(module))
    assert described(Held(module)) == before
    with torch.no_grad():
        module.weight += 1
    assert described(Held(module)) != before
    assert described(Held(torch.zeros(2))) != described(Held(torch.ones(2)))


def test_another_place_of_a_store_is_another_store() -> None:
    class Store:
        def __init__(self, name: str) -> None:
            self.collection_name, self.documents = name, ["never looked at"]

    class Retriever:
        def __init__(self, store: Any) -> None:
            self._vector_store = store

    assert described(Retriever(Store("a"))) != described(Retriever(Store("b")))
    full = Store("a")
    full.documents.append("more")
    assert described(Retriever(full)) == described(Retriever(Store("a")))


def test_what_a_component_holds_was_reconfigured() -> None:
    inner = Held("m 1")
    steady = Steady(Held(inner), lambda: described(inner))
    before = steady.value()
    assert steady.value() is before
    inner.part = "m 2"
    assert steady.value() != before


def test_passages_that_are_embedded_together_are_refused() -> None:
    late = Held(None)
    check_alone(late)
    late.late_chunking = True  # type: ignore[attr-defined]
    with pytest.raises(UnversionedModelError, match="neighbours"):
        check_alone(late)
    context = Held(None)
    context.model_name = "voyage-context-3"  # type: ignore[attr-defined]
    with pytest.raises(UnversionedModelError):
        check_alone(context)


def test_a_worker_writes_nothing_in_clear_into_a_sealed_folder(tmp_path: Path) -> None:
    aesgcm = pytest.importorskip("mmcache.codecs.aesgcm")
    pytest.importorskip("cryptography")
    with Cache(tmp_path / "sealed", codec=aesgcm.AESGCM(bytes(32))) as sealed:
        assert pickle.loads(pickle.dumps(Realm(sealed))).cache.root is None  # noqa: S301 - our own bytes
    with Cache(tmp_path / "keyed", secret=bytes(32)) as keyed:
        assert pickle.loads(pickle.dumps(Realm(keyed))).cache.root is None  # noqa: S301
    with Cache(tmp_path / "plain") as plain:
        assert pickle.loads(pickle.dumps(Realm(plain))).cache.root == tmp_path / "plain"  # noqa: S301


def test_a_missing_framework_says_what_to_install() -> None:
    require("json", "any")
    for missing in "nothing_like_it", "nothing_like_it.core":
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'mmcache\[some\]'"):
            require(missing, "some")
