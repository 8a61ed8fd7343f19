"""The pure parts of a load: when requests come, what blocks hold, what a writer knows of its keys, sums of counts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.cli.bench_live import _lines
from mmcache.lab.load.blocks import MIX, SMALLEST, Blocks, mean_bytes, size_of
from mmcache.lab.load.counts import BIN_SECONDS, Checked, Counts, Histogram, Timeline
from mmcache.lab.load.crowd import Outcome
from mmcache.lab.load.job import Job, Message, Order, Seen, Start
from mmcache.lab.load.ledger import Answer, Ledger
from mmcache.lab.load.shape import Shape, arrival_times, burst, mine, popularity, ramp, steady, traced
from mmcache.lab.load.summary import limit, summary
from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.model.frame import Frame

# shapes


def test_a_burst_has_so_many_times_the_requests() -> None:
    shape = burst("3@60+30")
    assert [shape.at(second) for second in (0, 59.9, 60, 89.9, 90, 1000)] == [1, 1, 3, 3, 1, 1]
    assert burst("2.5@0").at(0) == 2.5
    assert burst("4@10").at(1e6) == 4
    assert burst("3@60+30").mean(120) == pytest.approx(1.5)
    assert ramp(60).mean(60) == pytest.approx(1.0)


@pytest.mark.parametrize("wrong", ["", "3", "3@", "@60", "3@60+", "-3@60", "3@60-5", "x@1"])
def test_what_is_no_burst_is_refused(wrong: str) -> None:
    with pytest.raises(SettingsError, match="FACTOR@START"):
        burst(wrong)


def test_arrivals_are_in_order_and_as_many_as_the_rate_says() -> None:
    shape, random = burst("3@10+10"), np.random.default_rng(0)
    drawn = shape.arrivals(1000.0, 0.0, 30.0, random)
    assert (np.diff(drawn) >= 0).all()
    assert drawn.min() >= 0
    assert drawn.max() < 30
    inside = np.count_nonzero((drawn >= 10) & (drawn < 20))
    assert inside == pytest.approx(30_000, rel=0.03)
    assert len(drawn) - inside == pytest.approx(20_000, rel=0.03)


def test_a_lane_has_its_keys_and_all_lanes_have_all() -> None:
    weights = popularity(1000, 0.9)
    lanes = [mine(weights, index, 7) for index in range(7)]
    assert sorted(np.concatenate([numbers for numbers, _ in lanes]).tolist()) == list(range(1000))
    assert sum(float(shares[-1]) for _, shares in lanes) == pytest.approx(1.0)
    assert (np.diff(popularity(10, 0.0)) == 0).all()


def test_arrivals_of_a_log_keep_their_shape(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    rows = [f"2026-01-01 00:00:{second:02d}.1234567,5" for second in (0, 0, 0, 10, 20, 20)]
    log.write_text("TIMESTAMP,Tokens\n" + "\n".join(rows) + "\n")
    times = arrival_times(log)
    assert (times - times[0]).round().tolist() == [0, 0, 0, 10, 20, 20]
    shape = traced(times, 100.0, bins=4)
    assert shape.factors == pytest.approx((2.0, 0.0, 4 / 6, 8 / 6))
    assert shape.mean(100.0) == pytest.approx(1.0)
    lines = tmp_path / "log.jsonl"
    lines.write_text('{"timestamp": 1000, "x": 1}\n{"timestamp": 3000}\n')
    assert arrival_times(lines).tolist() == [1000, 3000]
    windows = tmp_path / "windows.csv"
    windows.write_text("start,rate\n0,2\n600,3.2\n")
    assert arrival_times(windows).tolist() == [0, 0, 600, 600, 600]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n1,2\n",
        "time\nnoon\n",
        "time\n1\n",
        "time\n1\nnan\n",
        "time,rate\n1,inf\n",
        '{"time": 1}\n{"time"',
        '{"time": 1}\n[2]\n',
    ],
)
def test_a_log_without_times_is_refused(tmp_path: Path, text: str) -> None:
    log = tmp_path / "log.csv"
    log.write_text(text)
    with pytest.raises(InvalidInputError):
        arrival_times(log)


# blocks


@pytest.fixture(scope="module")
def blocks() -> Blocks:
    return Blocks({64: 0.5, 20_000: 0.5}, 1)


@given(st.integers(0, 10**6), st.integers(1, 10**9))
def test_a_block_is_known_by_every_byte(blocks: Blocks, number: int, version: int) -> None:
    frame = Frame.parse(blocks.frame(number, version).to_bytes())
    assert frame.key == blocks.key(number)
    assert frame.size == blocks.size(number)
    assert frame.intact()
    assert blocks.version(number, frame.payload) == version  # type: ignore[arg-type]
    assert blocks.version(number + 1, bytes(frame.payload)) is None
    assert blocks.version(number, bytes(frame.payload)[:-1]) is None


@given(st.integers(0, 1000), st.integers(0, 10**6))
def test_one_wrong_bit_is_seen(blocks: Blocks, number: int, place: int) -> None:
    payload = bytearray(blocks.payload(number, 3))
    payload[place % len(payload)] ^= 1
    assert blocks.version(number, bytes(payload)) is None


def test_two_halves_of_two_versions_are_no_block(blocks: Blocks) -> None:
    number = next(number for number in range(100) if blocks.size(number) == 20_000)
    new, old = blocks.payload(number, 2), blocks.payload(number, 1)
    assert blocks.version(number, new[:10_000] + old[10_000:]) is None


def test_loads_of_one_seed_have_keys_of_their_own() -> None:
    names = {bytes(Blocks({64: 1.0}, 1, run).key(number)) for run in range(3) for number in range(10)}
    assert len(names) == 30


def test_sizes_are_drawn_by_their_shares() -> None:
    sizes = size_of(MIX)
    assert sum(sizes.values()) == pytest.approx(1.0)
    assert min(sizes) == 1536
    drawn = Blocks(sizes, 0)
    assert np.mean([drawn.size(number) for number in range(20_000)]) == pytest.approx(mean_bytes(sizes), rel=0.05)
    assert size_of("4KiB") == {4096: 1.0}
    for wrong in ("1", str(SMALLEST - 1), "1GiB", "many"):
        with pytest.raises(SettingsError):
            size_of(wrong)


# ledgers


def test_what_was_acknowledged_and_is_not_there_is_lost_once() -> None:
    ledger = Ledger()
    assert ledger.absent(1, 0.0, 0.1) is Answer.ABSENT
    first = ledger.next(1)
    ledger.stored(1, first, 1.0)
    second = ledger.next(1)
    ledger.stored(1, second, 2.0)
    assert ledger.read(1, second, 3.0, 3.1) is Answer.RIGHT
    assert ledger.read(1, first, 3.2, 3.3) is Answer.STALE
    assert ledger.absent(1, 4.0, 4.1) is Answer.LOST
    assert ledger.absent(1, 5.0, 5.1) is Answer.STILL
    assert [(one.version, one.at) for one in ledger.lost] == [(2, 2.0), (1, 2.0)]
    assert ledger.read(1, first, 6.0, 6.1) is Answer.RIGHT
    assert ledger.returned == 1
    assert [(one.version, one.at) for one in ledger.lost] == [(2, 2.0)]
    assert ledger.absent(1, 7.0, 7.1) is Answer.LOST
    ledger.stored(1, ledger.next(1), 8.0)
    assert ledger.read(1, 3, 9.0, 9.1) is Answer.RIGHT
    assert len(ledger.lost) == 2


def test_what_nobody_wrote_is_wrong() -> None:
    ledger = Ledger()
    assert ledger.read(1, None, 0, 0) is Answer.WRONG
    assert ledger.read(1, 1, 0, 0) is Answer.WRONG
    assert ledger.next(1) == 1
    assert ledger.read(1, 1, 0, 0) is Answer.RIGHT  # it was sent: it may be there
    assert ledger.read(1, 2, 0, 0) is Answer.WRONG


def test_after_a_refusal_either_may_be_there_or_nothing() -> None:
    ledger = Ledger()
    ledger.stored(1, ledger.next(1), 1.0)
    ledger.next(1)
    ledger.refused(1)
    assert ledger.read(1, 1, 0, 0) is Answer.RIGHT
    assert ledger.read(1, 2, 0, 0) is Answer.RIGHT
    assert ledger.absent(1, 0, 0) is Answer.UNSURE
    assert not ledger.lost
    assert ledger.written() == [1]
    ledger.stored(1, ledger.next(1), 2.0)
    assert ledger.absent(1, 0, 0) is Answer.LOST


def test_how_long_a_key_had_no_answer() -> None:
    ledger = Ledger()
    ledger.unanswered(1, 10.0)
    ledger.unanswered(1, 11.0)
    ledger.absent(2, 11.0, 11.25)
    assert ledger.longest_silence == (0.25, 11.25)
    ledger.absent(1, 12.0, 12.5)
    assert ledger.longest_silence == (2.5, 12.5)
    ledger.unanswered(3, 13.0)
    ledger.end(17.0)
    assert ledger.longest_silence == (4.0, 17.0)
    assert ledger.silent(9) == [3]
    ledger.read(3, None, 18.0, 18.5)
    assert ledger.longest_silence == (5.5, 18.5)


# counts


@given(st.lists(st.floats(1e-6, 50.0), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_histogram_is_right_to_five_per_cent(samples: list[float], share: float) -> None:
    histogram = Histogram()
    for sample in samples:
        histogram.add(sample)
    exact = float(np.percentile(samples, 100 * share, method="inverted_cdf"))
    found = histogram.percentile(share)
    assert found is not None
    assert max(exact, 1e-5) * 0.999 <= found <= max(exact, 1e-5) * 1.0501
    assert Histogram().percentile(0.5) is None


def test_counts_add_up_over_bins_and_pipes() -> None:
    line = Timeline()
    for place in (0, 0, 4, 9):
        seen = Seen(place, Counts(reads=2, hits=1, missed={"absent": 1}, took={3: 2}))
        decoded = msgspec.json.decode(msgspec.json.encode(seen), type=Message)
        assert isinstance(decoded, Seen)
        line.add(decoded.bin, decoded.counts)
    assert line.total() == Counts(reads=8, hits=4, missed={"absent": 4}, took={3: 8})
    assert line.between(1.0, 2.0).reads == 2
    assert line.seconds == 10 * BIN_SECONDS
    assert line.total().hit_share == 0.5
    assert line.total().failed == 0


def test_a_job_passes_a_pipe_and_shows_no_password() -> None:
    job = Job("valkey://:secret@h:1", 10.0, 1.0, 100, {64: 1.0}, "secret", starts=(0.0, 1.0), factors=(1.0, 2.0))
    start = msgspec.json.decode(msgspec.json.encode(Start(job, 3)), type=Order)
    assert start == Start(job, 3)
    assert job.shape == Shape((0.0, 1.0), (1.0, 2.0))
    assert steady() == Shape()
    assert "secret" not in repr(job) + repr(job.settings) + repr(start)


# the command's words


def test_the_summary_says_what_had_no_answer_and_could_not_be_read() -> None:
    counts = Counts(reads=10, hits=5, missed={"absent": 1, "tier-down": 4}, writes=3, refused={"tier-down": 3})
    ended = Outcome(counts, 1.0, [0.1], 0, 0.5, 1.0, [], 0, Checked(keys=7, unread=7))
    shown = _lines(summary(Job("valkey://h:1", 13.0, 1.0, 7, {64: 1.0}), ended))
    assert shown["not answered, not stored"] == "7 tier-down"
    assert shown["lost"] == "0 of 7 that were written; 7 could not be read"


def test_a_limit_is_told_where_more_than_a_few_were_not_asked() -> None:
    def ended(unasked: int, busy: float) -> Outcome:
        return Outcome(Counts(reads=1000), 1.0, [busy], unasked, 0.0, 0.0, [], 0, None)

    assert limit(ended(5, 1.0)) == ""
    assert "--processes" in limit(ended(500, 0.95))
    assert "servers" in limit(ended(500, 0.5))
