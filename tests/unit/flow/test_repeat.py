"""What a remembered call holds, and that it is done over as what it is, whoever writes to its inputs meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache import Cache
from mmcache.repeat import MOST_PARTS, Repeat, held_bytes

MIB = 1 << 20


class Words(list[str]):
    """May hold anything beside its items."""


def itself() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


def mapped(path: Path) -> Any:
    np.save(path, np.zeros(8))
    return np.load(path, mmap_mode="r")


def test_known_sizes() -> None:
    assert held_bytes(("a" * 1000,)) in range(1000, 5000)
    assert held_bytes((b"a" * 1000,)) in range(1000, 1200)
    assert held_bytes((np.zeros(1000), [1, 2.0, None, True], {"a": (b"x",)}, Path("/a"))) in range(8000, 9000)


def test_a_view_holds_what_it_is_a_view_of() -> None:
    hour = np.zeros(MIB, np.float32)
    assert (held_bytes((hour[:10],)) or 0) >= hour.nbytes
    assert (held_bytes((np.frombuffer(b"\0" * MIB, np.uint8)[:10].reshape(2, 5),)) or 0) >= MIB


def test_what_nobody_knows_the_size_of(tmp_path: Path) -> None:
    unknown = [
        itself(), Words(["a"]), [1] * (MOST_PARTS + 1), np.array([object()]), (part for part in "ab"), {1, 2},
        mapped(tmp_path / "array.npy"), np.frombuffer(bytearray(8), np.uint8), object(), [[itself()]],
    ]  # fmt: skip
    assert [held_bytes((value,)) for value in unknown] == [None] * len(unknown)


def test_torch_tensors_in_main_memory_without_a_graph_only() -> None:
    torch = pytest.importorskip("torch")
    whole = torch.zeros(MIB)
    assert (held_bytes((whole[:10],)) or 0) >= 4 * MIB
    assert held_bytes((torch.zeros(4, requires_grad=True) * 2,)) is None
    assert held_bytes((torch.zeros(4, device="meta"),)) is None


def test_an_argument_that_is_written_to_meanwhile_is_in_no_wrong_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cache() as cache:
        encode = cache.wrap(lambda text, words: [text, *words], modality="text", signature="1")
        words = ["a"]
        right = encode.key("t", ["a"])
        speculate = cache.answers.speculate

        def late(*given: Any) -> int:
            words[0] = "b"  # the caller goes on with its list
            return speculate(*given)

        monkeypatch.setattr(cache.answers, "speculate", late)
        assert Repeat(encode, "t", None, (words,), {})(None) > 0
        assert cache.peek(right) == ["t", "a"]


@pytest.mark.parametrize(("own", "longest"), [(60.0, 60.0), (None, 600.0)], ids=["shorter", "for-ever"])
def test_it_never_outlives_the_caches_own_lifetime(own: float | None, longest: float) -> None:
    with Cache(ttl=own) as cache:
        encode = cache.wrap(lambda text: [text], modality="text", signature="1")
        assert Repeat(encode, "t", None, (), {})(600.0) > 0
        deadline = cache.answers.resident(encode.key("t")).deadline
        assert deadline is not None
        assert deadline <= cache.clock.monotonic() + longest
