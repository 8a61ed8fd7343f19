"""The rows of the table `scale`."""

from __future__ import annotations

import itertools

from mmcache.lab.load.counts import Counts
from mmcache.lab.load.summary import times
from mmcache.lab.scale.trial import Trial
from mmcache.lab.table import Better, Row

RESHARDINGS = (("out", "3 to 5 shards"), ("in", "5 to 3 shards"))
CALM = (("before", "begin", "out"), ("after", "in done", "end"))


def losses(trial: Trial) -> list[Row]:
    """What must not be."""
    name = trial.name
    rows = [
        _row(
            f"{name}/lost", "acknowledged writes that are absent or older afterwards", "", "lower", trial.lost_before, 0
        ),
        _row(f"{name}/wrong", "answers that nobody stored for that key", "", "lower", trial.wrong, 0),
    ]
    if trial.killed is not None:
        rows.insert(
            1,
            _row(f"{name}/lost-unreplicated", "acknowledged writes that its replica did not have yet", "", "lower",
                 trial.lost_within),
        )  # fmt: skip
    rows.append(_row(f"{name}/returned", "keys not to be found for a while, though acknowledged, that came back", "",
                     "lower", trial.result.returned))  # fmt: skip
    checked = trial.result.checked
    if checked is not None:
        rows.append(_row(f"{name}/unread", "of all that was written, not to be read at the end", "", "lower",
                         checked.unread, 0))  # fmt: skip
    return rows


def resharding(trial: Trial) -> list[Row]:
    """Of a trial that grows and shrinks."""
    name, rows = trial.name, losses(trial)
    for phase, words in RESHARDINGS:
        seconds = trial.marks[f"{phase} done"] - trial.marks[phase]
        moving = moving_seconds(trial, phase) or seconds
        moved = trial.moved_bytes[phase] / 1e6
        rows += [
            _row(f"{name}/{phase}-seconds", f"{words}, from the word until it is steady", "s", "lower", seconds),
            _row(f"{name}/{phase}-speed", f"{words}: {moved:.0f} MB, from the first slot to the last", "MB/s", "higher",
                 moved / moving),
        ]  # fmt: skip
    if "served again" in trial.marks:
        again = trial.marks["served again"] - trial.marks["killed"]
        rows.append(_row(f"{name}/served-again", "from the kill until all slots are served", "s", "lower", again))
    rows.append(
        _row(f"{name}/silence", "longest that one key had no answer", "s", "lower", trial.result.longest_silence)
    )
    killed = [("killed", "killed", "served again")] if "served again" in trial.marks else []
    phases = [*CALM, *killed, *((phase, phase, f"{phase} done") for phase, _ in RESHARDINGS)]
    for phase, begin, end in phases:
        words = {**dict(RESHARDINGS), "killed": "from the kill until all slots are served"}.get(phase, phase)
        rows += _seen(f"{name}/{{}}-{phase}", words, trial.phase(begin, end))
    return rows


def bursting(trial: Trial) -> list[Row]:
    """Of a trial in which load grows."""
    name, marks = trial.name, trial.marks
    rows = [
        _row(f"{name}/{id}", f"from three times the load until {words}", "s", "lower", marks[mark] - marks["burst"])
        for id, mark, words in (
            ("notice-seconds", "noticed", "more shards are decided on"),
            ("first-seconds", "first serves", "the first new shard serves"),
            ("all-seconds", "all serve", "all five serve, in balance"),
        )
    ]
    rows += losses(trial)
    for phase, begin, end in (
        ("before", "begin", "burst"), ("unnoticed", "burst", "noticed"), ("meanwhile", "noticed", "all serve"),
        ("after", "all serve", "end"),
    ):  # fmt: skip
        rows += _seen(f"{name}/{{}}-{phase}", phase, trial.phase(begin, end))
    return rows


def moving_seconds(trial: Trial, phase: str) -> float | None:
    """From the first slot that moved to the last, as was seen from outside."""
    begin, end = trial.marks[phase], trial.marks[f"{phase} done"]
    inside = [(at, sight.at_new) for at, sight in trial.sights if begin - 0.5 <= at <= end + 0.5]
    changes = [at for (_, was), (at, now) in itertools.pairwise(inside) if was != now]
    return changes[-1] - changes[0] if len(changes) > 1 else None


def _seen(id: str, words: str, counts: Counts) -> list[Row]:
    took = times(counts)
    figures: list[tuple[str, str, str, Better, float | None]] = [
        ("hits", "reads that were hits", "%", "higher", None if counts.hit_share is None else 100 * counts.hit_share),
        ("p50", "P50 of requests", "ms", "lower", took["p50_ms"]),
        ("p99", "P99 of requests", "ms", "lower", took["p99_ms"]),
        ("unanswered", "requests that were not answered, or not stored", "%", "lower",
         100 * counts.failed / counts.requests if counts.requests else None),
    ]  # fmt: skip
    return [_row(id.format(name), f"{metric}, {words}", unit, better, value) for name, metric, unit, better, value
            in figures]  # fmt: skip


def _row(id: str, metric: str, unit: str, better: Better, value: float | None, target: float | None = None) -> Row:
    return Row(id, metric, unit, better, None if value is None else float(value), None, target)
