"""Real engines on a little LLaVA: cold, repeated, restarted, shared; by whom, and under which uuid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed; `make test-vllm` runs these")

import numpy as np
from PIL import Image

from mmcache.lab.engines.process import Answer, Asking, Engine
from mmcache.lab.servers import server
from mmcache.model.errors import AssetError

TEXT = "w1 <image> w2"
CLOSE = 0.02
"""Log-probabilities of one answer computed twice differ by less; those of another picture by more."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module")
def pictures(folder: Path) -> list[Path]:
    random = np.random.default_rng(0)
    made = []
    for number in range(4):
        made.append(folder / f"{number}.png")
        Image.fromarray(random.integers(0, 255, (336, 336, 3), dtype=np.uint8)).save(made[-1])
    return made


@pytest.fixture(scope="module")
def right(folder: Path, pictures: list[Path]) -> list[Answer]:
    """What the model says to each picture, without any cache."""
    with Engine("none", folder=folder, store=folder / "none") as engine:
        engine.ask(None, "w1")
        answers = [engine.ask(picture, TEXT) for picture in pictures]
    assert all(one.differs(other) > CLOSE for one in answers for other in answers if one is not other)
    return answers


@pytest.fixture(scope="module")
def store(folder: Path) -> Path:
    return folder / "outer" / "store"


@pytest.fixture(scope="module")
def first(folder: Path, store: Path) -> Iterator[Engine]:
    with Engine("ours", folder=folder, store=store) as engine:
        yield engine


def test_a_repeated_picture_is_not_encoded(first: Engine, pictures: list[Path], right: list[Answer]) -> None:
    cold = first.ask(pictures[0], TEXT)
    other = first.ask(pictures[1], TEXT)  # there is room for one picture in the engine
    again = first.ask(pictures[0], "w9 <image> w2")
    assert (cold.encoded, other.encoded, again.encoded) == (1, 1, 0)
    assert cold.differs(right[0]) < CLOSE
    assert other.differs(right[1]) < CLOSE


def test_a_uuid_is_not_believed(first: Engine, pictures: list[Path], right: list[Answer], store: Path) -> None:
    for uuid, number in (("U", 0), ("U", 2), ("../outside", 2), ("../outside", 0), ("/tmp/absolute", 1)):
        assert first.ask(pictures[number], TEXT, uuid=uuid).differs(right[number]) < CLOSE
    assert [path.name for path in store.parent.iterdir()] == [store.name]


def test_a_salt_is_a_tenant(first: Engine, pictures: list[Path], right: list[Answer]) -> None:
    found = [first.ask(pictures[0], TEXT, salt=salt) for salt in ("a", "b", "a")]
    assert [answer.encoded for answer in found] == [1, 1, 0]
    assert all(answer.differs(right[0]) < CLOSE for answer in found)


def test_the_same_pixels_in_another_file_are_the_same(first: Engine, folder: Path, pictures: list[Path]) -> None:
    with Image.open(pictures[0]) as opened:
        opened.save(folder / "0.bmp")
        opened.save(folder / "0.jpg", quality=60)
    assert first.ask(folder / "0.bmp", TEXT).encoded == 0
    assert first.ask(folder / "0.jpg", TEXT).encoded == 1


def test_many_at_once_under_one_uuid(first: Engine, pictures: list[Path], right: list[Answer]) -> None:
    """In one step of the engine: two pictures of one uuid, a repeated one, and another tenant's."""
    numbers = [0, 2, 0, 2, 1, 0]
    salts = [None, None, None, "b", None, "a"]
    asked = [Asking(pictures[n], TEXT, uuid="V", salt=salt) for n, salt in zip(numbers, salts, strict=True)]
    answers = first.together(asked)
    assert [answer.tokens for answer in answers] == [right[n].tokens for n in numbers]
    assert all(answer.differs(right[n]) < 5 * CLOSE for answer, n in zip(answers, numbers, strict=True))


def test_a_second_engine_shares_and_a_killed_one_loses_nothing(
    first: Engine, folder: Path, store: Path, pictures: list[Path], right: list[Answer]
) -> None:
    first.flush()
    second = Engine("ours", folder=folder, store=store)
    with second:
        found = second.ask(pictures[0], TEXT)
        assert (found.encoded, found.prefix) == (0, 0)
        assert found.differs(right[0]) < CLOSE
        assert second.ask(pictures[3], TEXT).encoded == 1
        second.flush()
        found = first.ask(pictures[3], TEXT)
        assert found.encoded == 0
        assert found.differs(right[3]) < CLOSE
        first.kill()
        assert second.ask(pictures[1], TEXT).encoded == 0
        second.kill()
    with Engine("ours", folder=folder, store=store) as third:
        found = third.ask(pictures[3], TEXT)
        assert found.encoded == 0
        assert found.differs(right[3]) < CLOSE


def test_engines_of_two_machines_share_through_a_server(
    folder: Path, pictures: list[Path], right: list[Answer]
) -> None:
    try:
        opened = server(folder / "valkey")
        started = opened.__enter__()
    except AssetError as error:
        pytest.skip(str(error))
    variables = {"MMCACHE_TEST_SECRET": "5a" * 32}
    options = {"shared": f"valkey://127.0.0.1:{started.port}", "secret_env": "MMCACHE_TEST_SECRET"}
    try:
        for machine in ("here", "there"):
            with Engine("ours", folder=folder, store=folder / machine, options=options, variables=variables) as engine:
                found = engine.ask(pictures[0], TEXT)
                assert found.encoded == (machine == "here")
                assert found.differs(right[0]) < CLOSE
                engine.flush()
    finally:
        opened.__exit__(None, None, None)
