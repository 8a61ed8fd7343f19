"""Snapshots: the same blocks back, or a clear error."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from mmcache import snapshot
from mmcache.model.errors import SnapshotError
from mmcache.model.event import MissReason, RefuseReason
from mmcache.model.frame import CodecStep, Frame, FrameHeader, LeafHeader, aligned
from mmcache.model.key import Key
from mmcache.tiers.base import Deadline, Found, Held, TierStats

SECRET = b"s" * 32


class Now:
    def __init__(self, monotonic: float = 100.0, wall: float = 1_000_000.0) -> None:
        self._monotonic, self._wall = monotonic, wall

    def monotonic(self) -> float:
        return self._monotonic

    def wall(self) -> float:
        return self._wall


class DictTier:
    name = "dict"

    def __init__(self, refuse: RefuseReason | None = None) -> None:
        self.held: dict[Key, Found] = {}
        self.refuse = refuse

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        return [self.held.get(key, MissReason.ABSENT) for key in keys]

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        if self.refuse is None:
            for frame, deadline in zip(frames, deadlines, strict=True):
                self.held[frame.key] = Found(frame, deadline)
        return [self.refuse] * len(frames)

    def drop(self, keys: Iterable[Key]) -> int:
        return sum(self.held.pop(key, None) is not None for key in keys)

    def scan(self) -> Iterator[Held]:
        for key, found in self.held.items():
            header = found.frame.header
            parts = header.tenant, header.namespace, header.model, header.modality
            yield Held(key, found.frame.size, found.deadline, header.created, *parts)

    def flush(self) -> None: ...

    def stats(self) -> TierStats:
        return TierStats(len(self.held), 0, None, {})

    def close(self) -> None: ...


def frame(number: int, leaves: Sequence[npt.NDArray[np.generic]], *, tenant: str = "a", chain: str = "") -> Frame:
    headers, payload = [], b""
    for leaf in leaves:
        steps = (CodecStep(chain, {}),) if chain else ()
        headers.append(LeafHeader("numpy", leaf.dtype.str, leaf.shape, steps, len(payload), leaf.nbytes))
        payload += leaf.tobytes().ljust(aligned(leaf.nbytes), b"\0")
    key = Key(bytes(16), number.to_bytes(16, "big"))
    tree = msgspec.Raw(msgspec.msgpack.encode(list(range(len(leaves)))))
    header = FrameHeader(
        bytes(key), b"g" * 16, "image", tenant, "", f"model-{number % 2}", 7.0, 0.5, tree, tuple(headers)
    )
    return Frame.seal(header, payload)


def filled(count: int = 5) -> DictTier:
    tier = DictTier()
    for number in range(count):
        one = frame(number, [np.full((3, number + 1), number, np.float16), np.arange(5)], tenant="ab"[number % 2])
        tier.held[one.key] = Found(one, None if number else 160.0)
    return tier


def same(one: Found, other: Found) -> bool:
    return one.frame.header == other.frame.header and bytes(one.frame.payload) == bytes(other.frame.payload)


def test_what_was_saved_comes_back_bit_for_bit(tmp_path: Path) -> None:
    source, target = filled(150), DictTier()
    seen: list[tuple[str, int, int]] = []
    saved = snapshot.save(source, tmp_path / "x", secret=SECRET, clock=Now(), progress=lambda *step: seen.append(step))
    assert saved == snapshot.manifest(tmp_path / "x")
    assert (saved.blocks, saved.models, saved.signatures) == (150, ("model-0", "model-1"), ((b"g" * 16).hex(),))
    assert seen[-1] == ("saving", 150, 150)
    loaded = snapshot.load(tmp_path / "x", target, secret=SECRET, clock=Now(monotonic=5.0))
    assert loaded == snapshot.Loaded(150, 0, {})
    assert all(same(found, target.held[key]) and target.held[key].frame.intact() for key, found in source.held.items())
    assert list(tmp_path.iterdir()) == [tmp_path / "x"], "nothing else is left behind"


def test_deadlines_survive_another_machine_clock_and_pass_while_the_file_lies_still(tmp_path: Path) -> None:
    snapshot.save(filled(2), tmp_path / "x", secret=SECRET, clock=Now(monotonic=100.0, wall=1000.0))
    target = DictTier()
    snapshot.load(tmp_path / "x", target, secret=SECRET, clock=Now(monotonic=3.0, wall=1020.0))
    assert sorted(found.deadline or 0.0 for found in target.held.values()) == [0.0, 43.0]
    loaded = snapshot.load(tmp_path / "x", DictTier(), secret=SECRET, clock=Now(wall=1060.0))
    assert (loaded.blocks, loaded.expired) == (1, 1)


def test_only_the_matching_blocks_are_saved_and_loaded(tmp_path: Path) -> None:
    saved = snapshot.save(filled(6), tmp_path / "x", secret=SECRET, match=lambda held: held.tenant == "a")
    assert saved.blocks == 3
    target = DictTier()
    loaded = snapshot.load(tmp_path / "x", target, secret=SECRET, match=lambda head: head.model == "model-1")
    assert (loaded.blocks, target.held) == (0, {})


def test_any_safetensors_reader_sees_features_as_features(tmp_path: Path) -> None:
    tier = filled(2)
    encoded = frame(9, [np.arange(4, dtype=np.float32)], chain="int4")
    tier.held[encoded.key] = Found(encoded, None)
    snapshot.save(tier, tmp_path / "x", secret=SECRET)
    tensors = load_file(tmp_path / "x")
    key = next(iter(filled(2).held))
    assert tensors[f"{key}/0"].dtype == np.float16
    assert np.array_equal(tensors[f"{key}/1"], np.arange(5))
    assert tensors[f"{encoded.key}/0"].dtype == np.uint8


def test_another_secret_is_an_error_and_not_silent_misses(tmp_path: Path) -> None:
    snapshot.save(filled(), tmp_path / "x", secret=SECRET)
    target = DictTier()
    with pytest.raises(SnapshotError, match="realm secret") as caught:
        snapshot.load(tmp_path / "x", target, secret=b"t" * 32)
    assert snapshot.fingerprint(SECRET) in str(caught.value)
    assert SECRET.hex() not in str(caught.value)
    assert not target.held


def directory(page: bytes) -> tuple[dict[str, dict[str, str]], bytes]:
    length = int.from_bytes(page[:8], "little")
    return json.loads(page[8 : 8 + length]), page[8 + length :]


def rewritten(page: bytes, **changes: object) -> bytes:
    head, data = directory(page)
    described = json.loads(head["__metadata__"]["mmcache"]) | changes
    head["__metadata__"]["mmcache"] = json.dumps(described, separators=(",", ":"))
    raw = json.dumps(head).encode()
    raw = raw.ljust((len(raw) + 7) & -8)
    return len(raw).to_bytes(8, "little") + raw + data


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F16", "I16", "NONSENSE", 7])
@pytest.mark.parametrize("which", ["index", "leaf"])
def test_a_directory_that_lies_about_dtypes_is_refused(dtype: object, which: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    snapshot.save(filled(2), path, secret=SECRET)
    head, data = directory(path.read_bytes())
    name = snapshot.INDEX if which == "index" else next(name for name in head if name.endswith("/1"))
    size = int(head[name]["data_offsets"][1]) - int(head[name]["data_offsets"][0])
    width = {"F8_E4M3": 1}.get(str(dtype), 2)
    head[name]["dtype"], head[name]["shape"] = dtype, [size // width]  # type: ignore[assignment]
    raw = json.dumps(head).encode()
    raw = raw.ljust((len(raw) + 7) & -8)
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    target = DictTier()
    with contextlib.suppress(SnapshotError):
        snapshot.load(path, target, secret=SECRET)
    source = filled(2)
    assert all(same(found, source.held[key]) for key, found in target.held.items())


def test_a_newer_version_and_a_foreign_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    snapshot.save(filled(), path, secret=SECRET)
    page = path.read_bytes()
    path.write_bytes(rewritten(page, version=2))
    with pytest.raises(SnapshotError, match="newer"):
        snapshot.load(path, DictTier(), secret=SECRET)
    path.write_bytes(rewritten(page, blocks=99))
    with pytest.raises(SnapshotError, match="altered"):
        snapshot.load(path, DictTier(), secret=SECRET)
    for foreign in (b"", b"not a snapshot at all", (1 << 60).to_bytes(8, "little") + b"{}", b"\2" + bytes(7) + b"{}"):
        path.write_bytes(foreign)
        with pytest.raises(SnapshotError):
            snapshot.load(path, DictTier(), secret=SECRET)
    with pytest.raises(SnapshotError, match="no snapshot at"):
        snapshot.manifest(tmp_path / "missing")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_flipped_bit_and_no_lost_tail_loads_a_wrong_block(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("flip") / "x"
    source = filled(3)
    snapshot.save(source, path, secret=SECRET, clock=Now())
    page = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(page) - 1))
    if data.draw(st.booleans()):
        page[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del page[place:]
    path.write_bytes(page)
    target = DictTier()
    with contextlib.suppress(SnapshotError):
        snapshot.load(path, target, secret=SECRET, clock=Now())
    assert all(same(found, source.held[key]) for key, found in target.held.items())


def test_a_damaged_block_is_not_saved(tmp_path: Path) -> None:
    tier = filled(1)
    ((key, found),) = tier.held.items()
    payload = bytearray(found.frame.payload)
    payload[0] ^= 1
    tier.held[key] = Found(Frame(found.frame.header, bytes(payload), found.frame.checksum), None)
    with pytest.raises(SnapshotError, match="mmcache verify"):
        snapshot.save(tier, tmp_path / "x", secret=SECRET)
    assert list(tmp_path.iterdir()) == []


def test_what_the_tier_refuses_is_counted(tmp_path: Path) -> None:
    snapshot.save(filled(4), tmp_path / "x", secret=SECRET, clock=Now())
    loaded = snapshot.load(tmp_path / "x", DictTier(RefuseReason.DISK_FULL), secret=SECRET, clock=Now())
    assert loaded == snapshot.Loaded(0, 0, {"disk-full": 4})


def test_an_unwritable_place_keeps_the_old_snapshot_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="cannot write"):
        snapshot.save(filled(), tmp_path / "no" / "x", secret=SECRET)


def test_an_empty_tier_makes_an_empty_snapshot(tmp_path: Path) -> None:
    assert snapshot.save(DictTier(), tmp_path / "x", secret=SECRET).blocks == 0
    assert snapshot.load(tmp_path / "x", DictTier(), secret=SECRET) == snapshot.Loaded(0, 0, {})
