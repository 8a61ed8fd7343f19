"""What every `Tier` must do. Subclass it in your tests and give it your tier."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmcache.model.errors import TierClosedError
from mmcache.model.event import MissReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.testing.clock import FakeClock
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Deadline, Found, Tier

PATIENCE_SECONDS = 60.0
"""Only a deadlocked tier ever waits this long."""


class TierContract:
    """Hooks: `make_tier`, and `batch` where 64 small blocks are too many. Every test gets a tier of its own.

    class TestMine(TierContract):
        def make_tier(self, clock, folder):
            return MyTier(folder, clock=clock)
    """

    batch = 64
    """So many blocks of up to 4 KiB are put at once; the tier must hold them all."""

    def make_tier(self, clock: FakeClock, folder: Path) -> Tier:
        """A new, empty tier that takes its time from `clock` and may write below `folder`."""
        raise NotImplementedError

    @pytest.fixture
    def clock(self) -> FakeClock:
        """The time that the tier sees."""
        return FakeClock()

    @pytest.fixture
    def tier(self, clock: FakeClock, tmp_path: Path) -> Iterator[Tier]:
        """The tier under test, closed at the end."""
        tier = self.make_tier(clock, tmp_path)
        yield tier
        tier.close()

    def test_is_a_tier(self, tier: Tier) -> None:
        assert isinstance(tier, Tier)
        assert tier.name

    def test_a_new_tier_is_empty(self, tier: Tier) -> None:
        assert list(tier.scan()) == []
        assert tier.stats().blocks == 0
        assert tier.get([make_key(1)]) == [MissReason.ABSENT]

    def test_what_was_put_is_found_byte_for_byte(self, tier: Tier) -> None:
        frames = [make_frame(make_key(n), bytes(range(256)) * (n % 17)) for n in range(self.batch)]
        assert _put(tier, frames) == [None] * self.batch
        for frame, found in zip(frames, tier.get([frame.key for frame in frames]), strict=True):
            assert isinstance(found, Found)
            assert found.frame.header == frame.header
            assert found.frame.checksum == frame.checksum
            assert bytes(found.frame.payload) == bytes(frame.payload)
            assert found.frame.intact()
            assert found.deadline is None

    def test_answers_keep_the_order_of_the_keys(self, tier: Tier) -> None:
        _put(tier, [make_frame(make_key(n), b"%d" % n) for n in range(self.batch) if n % 3])
        asked = [n * 31 % self.batch for n in range(self.batch)]
        answers = tier.get([make_key(n) for n in asked])
        assert [_payload(found) for found in answers] == [b"%d" % n if n % 3 else None for n in asked]

    def test_a_key_may_be_asked_twice_in_one_batch(self, tier: Tier) -> None:
        _put(tier, [make_frame(make_key(1), b"one")])
        assert [_payload(found) for found in tier.get([make_key(1), make_key(2), make_key(1)])] == [
            b"one",
            None,
            b"one",
        ]

    def test_the_last_of_two_frames_of_one_key_in_a_batch_wins(self, tier: Tier) -> None:
        assert _put(tier, [make_frame(make_key(1), b"old"), make_frame(make_key(1), b"newer")]) == [None, None]
        assert _payload(tier.get([make_key(1)])[0]) == b"newer"
        assert [held.key for held in tier.scan()] == [make_key(1)]
        assert _blocks(tier) == 1

    def test_a_put_replaces_value_and_deadline(self, tier: Tier, clock: FakeClock) -> None:
        _put(tier, [make_frame(make_key(1), b"old" * 500)], [clock.monotonic() + 1])
        _put(tier, [make_frame(make_key(1), b"new")], [clock.monotonic() + 100])
        clock.advance(50)
        assert _payload(tier.get([make_key(1)])[0]) == b"new"
        assert _blocks(tier) == 1

    def test_no_keys_and_no_frames_are_no_error(self, tier: Tier) -> None:
        assert tier.get([]) == []
        assert tier.put([], []) == []
        assert tier.drop([]) == 0
        tier.flush()

    def test_an_empty_payload_is_a_value(self, tier: Tier) -> None:
        _put(tier, [make_frame(make_key(1), b"")])
        assert _payload(tier.get([make_key(1)])[0]) == b""

    def test_a_deadline_ends_a_block_at_its_very_second(self, tier: Tier, clock: FakeClock) -> None:
        deadline = clock.monotonic() + 10
        _put(tier, [make_frame(make_key(1)), make_frame(make_key(2))], [deadline, None])
        clock.advance(9.5)
        found = tier.get([make_key(1)])[0]
        assert isinstance(found, Found)
        assert found.deadline == pytest.approx(deadline, abs=1e-3)
        clock.advance(0.5)
        assert tier.get([make_key(1)]) == [MissReason.EXPIRED]
        assert isinstance(tier.get([make_key(2)])[0], Found)

    def test_a_stepped_wall_clock_neither_ends_nor_extends_a_block(self, tier: Tier, clock: FakeClock) -> None:
        _put(tier, [make_frame(make_key(1))], [clock.monotonic() + 10])
        clock.step_wall(86_400)
        assert isinstance(tier.get([make_key(1)])[0], Found)
        clock.step_wall(-2 * 86_400)
        clock.advance(10)
        assert not isinstance(tier.get([make_key(1)])[0], Found)

    def test_an_expired_block_can_be_put_again(self, tier: Tier, clock: FakeClock) -> None:
        _put(tier, [make_frame(make_key(1), b"old")], [clock.monotonic() + 1])
        clock.advance(2)
        _put(tier, [make_frame(make_key(1), b"new")])
        assert _payload(tier.get([make_key(1)])[0]) == b"new"

    def test_dropped_is_gone_and_counted_once(self, tier: Tier) -> None:
        _put(tier, [make_frame(make_key(n)) for n in range(3)])
        assert tier.drop([make_key(0), make_key(0), make_key(9)]) == 1
        assert tier.drop(key for key in [make_key(0), make_key(2)]) == 1
        assert [isinstance(found, Found) for found in tier.get([make_key(n) for n in range(3)])] == [False, True, False]
        assert [held.key for held in tier.scan()] == [make_key(1)]

    def test_a_neighbouring_key_is_never_answered(self, tier: Tier) -> None:
        key = make_key(1, scope=1, region=1)
        _put(tier, [make_frame(key, b"secret")])
        near = [make_key(1, scope=2, region=1), make_key(2, scope=1, region=1), make_key(1, scope=1, region=2),
                make_key(1, scope=1)]  # fmt: skip
        near += [Key.from_bytes(bytes(b ^ (place == flipped) for place, b in enumerate(key))) for flipped in range(48)]
        assert tier.get(near) == [MissReason.ABSENT] * len(near)
        assert tier.drop(near) == 0
        assert _payload(tier.get([key])[0]) == b"secret"

    def test_scan_tells_what_is_held(self, tier: Tier, clock: FakeClock) -> None:
        deadline = clock.monotonic() + 60
        frame = make_frame(make_key(1), b"x" * 1000, tenant="acme", namespace="ns", model="m-2", modality="image")
        _put(tier, [frame, make_frame(make_key(2))], [deadline, None])
        held = {line.key: line for line in tier.scan()}
        assert set(held) == {make_key(1), make_key(2)}
        line = held[make_key(1)]
        assert (line.tenant, line.namespace, line.model, line.modality) == ("acme", "ns", "m-2", "image")
        assert line.created == frame.header.created
        assert line.size >= 1000
        assert line.deadline == pytest.approx(deadline, abs=1e-3)
        assert held[make_key(2)].deadline is None

    def test_a_scan_survives_changes_made_meanwhile(self, tier: Tier) -> None:
        _put(tier, [make_frame(make_key(n)) for n in range(self.batch)])
        seen = set()
        for n, held in enumerate(tier.scan()):
            seen.add(held.key)
            if n < 8:
                tier.drop([held.key])
                _put(tier, [make_frame(make_key(n), b"again")])
        assert len(seen) >= self.batch - 8

    def test_a_view_outlives_drop_replacement_and_close(self, tier: Tier) -> None:
        _put(tier, [make_frame(make_key(n), b"%d" % n * 300) for n in range(3)])
        held = tier.get([make_key(n) for n in range(3)])
        tier.drop([make_key(0)])
        _put(tier, [make_frame(make_key(1), b"other")])
        tier.flush()
        tier.close()
        assert [_payload(found) for found in held] == [b"%d" % n * 300 for n in range(3)]
        assert all(isinstance(found, Found) and found.frame.intact() for found in held)

    def test_payloads_cannot_be_written_through(self, tier: Tier) -> None:
        _put(tier, [make_frame(make_key(1), b"immutable")])
        found = tier.get([make_key(1)])[0]
        assert isinstance(found, Found)
        assert memoryview(found.frame.payload).readonly

    def test_closed_is_closed(self, tier: Tier) -> None:
        _put(tier, [make_frame(make_key(1))])
        tier.close()
        tier.close()
        with pytest.raises(TierClosedError):
            tier.get([make_key(1)])
        with pytest.raises(TierClosedError):
            tier.put([make_frame(make_key(1))], [None])
        with pytest.raises(TierClosedError):
            tier.drop([make_key(1)])
        with pytest.raises(TierClosedError):
            list(tier.scan())

    def test_many_threads_see_whole_blocks_of_their_own_keys(self, tier: Tier) -> None:
        keys = [make_key(n) for n in range(8)]
        failures: list[str] = []
        start = threading.Barrier(6)

        def work(worker: int) -> None:
            start.wait()
            for turn in range(40):
                n = (worker * 7 + turn * 3) % len(keys)
                _put(tier, [make_frame(keys[n], b"%d:" % n + b"%d" % (turn % 10) * 400)])
                if turn % 5 == worker % 5:
                    tier.drop([keys[(n + 1) % len(keys)]])
                for m, found in enumerate(tier.get(keys)):
                    payload = _payload(found)
                    if payload is not None and (not payload.startswith(b"%d:" % m) or len(set(payload[2:])) != 1):
                        failures.append(f"key {m} gave {payload[:20]!r}")

        threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert not any(thread.is_alive() for thread in threads), "a thread is stuck"
        assert not failures
        assert {held.key for held in tier.scan()} <= set(keys)
        assert _blocks(tier) == len(list(tier.scan()))


def _put(tier: Tier, frames: list[Frame], deadlines: list[Deadline] | None = None) -> list[object]:
    return list(tier.put(frames, [None] * len(frames) if deadlines is None else deadlines))


def _payload(found: Found | MissReason) -> bytes | None:
    return bytes(found.frame.payload) if isinstance(found, Found) else None


def _blocks(tier: Tier) -> int:
    tier.flush()  # gauges tell what rests here, not what is on its way
    return tier.stats().blocks
