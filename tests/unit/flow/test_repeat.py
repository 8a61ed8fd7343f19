"""What a remembered call holds, and that it is done over as what it is, whoever writes to its inputs meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmcache import Cache
from mmcache.keys.region import Region
from mmcache.model.key import Key
from mmcache.repeat import MOST_PARTS, Repeat, held_bytes
from mmcache.visits import Again

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


class Told:
    """A prefetcher that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[Key, Again | None]] = []

    def start(self, cache: Cache) -> None: ...

    def visited(self, key: Key, again: Again | None = None) -> None:
        self.seen.append((key, again))

    def close(self) -> None: ...


WAYS: dict[str, Callable[[Any, Any], object]] = {
    "call": lambda encode, picture: encode(picture, 2, scale=[3.0]),
    "region": lambda encode, picture: encode.region(picture, Region.whole(16, 16).crop((0, 0, 8, 8)), 2),
    "tiles": lambda encode, picture: encode.tiles(picture, tile=8),
    "batch": lambda encode, picture: encode.batch([picture, picture.rotate(90)], scale=[1.0, 2.0]),
    "async": lambda encode, picture: asyncio.run(encode.a(picture)),
    "tenant": lambda encode, picture: encode.options(tenant="other")(picture),
    "namespace": lambda encode, picture: encode.options(namespace="other")(picture, 5),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_done_over_is_what_was_there_under_the_same_key(way: str) -> None:
    told = Told()

    def model(picture: Any, factor: int = 1, scale: Any = ()) -> Any:
        return np.asarray(picture, np.float32).mean(axis=(0, 1)) * factor * (sum(scale) or 1.0)

    pixels = np.random.default_rng(0).integers(0, 255, (16, 16, 3), np.uint8)
    with Cache(prefetch=told) as cache:
        encode = cache.wrap(model, modality="image", signature="1", guard=False)
        WAYS[way](encode, Image.fromarray(pixels))
        seen = [(key, again) for key, again in told.seen if again is not None]
        assert seen
        before = {key: cache.peek(key) for key, _ in seen}
        assert all(value is not None for value in before.values())
        cache.invalidate(list(before))
        for number, (key, again) in enumerate(seen):
            if key in [other for other, _ in seen[:number]]:
                continue
            assert cache.peek(key) is None
            assert again is not None
            assert again(None) > 0
            assert np.array_equal(cache.peek(key), before[key])
        assert len(told.seen) == len(seen)  # doing it over is no visit
