"""What a `Calibrated` has learned, as msgpack: versioned, validated before a byte of it is believed, bounded."""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING

import msgspec

from mmcache.calibration.curve import Curve
from mmcache.calibration.distance import BINS, NEARS, WORDS
from mmcache.calibration.evidence import Evidence, Record
from mmcache.calibration.general import CLASSES
from mmcache.calibration.thresholds import GRID
from mmcache.model.errors import CorruptFrameError

if TYPE_CHECKING:
    from mmcache.calibration.calibrated import Calibrated

KIND = "mmcache.calibrated"
VERSION = 2
LARGEST_STATE = 1 << 26
"""Bytes."""
WORDING = 16
"""Bytes that name one."""
MOST_COUNT = 1e15
_WEIGHTS = Struct(f"<{len(GRID)}d")


class _Settings(msgspec.Struct, frozen=True, array_like=True):
    max_error: float
    confidence: float
    check_share: float
    own_evidence: int = 0

    def certify_like(self, other: _Settings) -> bool:
        """Whether certificates of one are those of the other: how much is checked has nothing to do with them."""
        return msgspec.structs.replace(self, check_share=other.check_share) == other


class _Test(msgspec.Struct, frozen=True, array_like=True):
    logs: list[float]
    seen: int
    wrong: int
    tries: int
    total: int


class _Record(msgspec.Struct, frozen=True, array_like=True):
    name: bytes
    age: int
    seen: float
    right: float
    owed: int
    surprises: int
    weights: bytes


_Curve = tuple[list[float], list[float], list[float]]
"""Right, wrong, values."""


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    version: int
    settings: _Settings
    counts: dict[str, int]
    tests: list[_Test]
    credit: float
    alert: bool
    drift: list[float]
    hits: int
    caught: list[int]
    age: int
    priors: list[bytes]
    nears: list[tuple[float, float]]
    mixed: dict[int, _Curve]
    curves: dict[int, _Curve]
    homes: list[tuple[bytes, bytes]]
    records: list[_Record]


_decode = msgspec.msgpack.Decoder(_State).decode


def _settings(of: Calibrated) -> _Settings:
    return _Settings(of.max_error, of.confidence_level, of.check_share, of.own_evidence)


def pack(of: Calibrated) -> bytes:
    """All that `of` has learned."""
    evidence = of.evidence
    return msgspec.msgpack.encode(
        _State(
            KIND,
            VERSION,
            _settings(of),
            of.counts,
            [_Test(test.logs, test.seen, test.wrong, test.tries, test.total) for test in of.tests],
            of.ledger.credit,
            of.ledger.alert,
            of.drift.logs,
            of.served_bound.hits,
            of.served_bound.caught,
            evidence.age,
            [_WEIGHTS.pack(*prior.weights) for prior in evidence.priors],
            [(right, wrong) for right, wrong in evidence.general.usual],
            _curves(evidence.general.mixed),
            _curves(evidence.general.curves),
            list(evidence.homes.items()),
            [
                _Record(name, one.age, one.seen, one.right, one.owed, one.surprises, _WEIGHTS.pack(*one.weights))
                for name, one in evidence.records.items()
            ],
        )
    )  # fmt: skip


def _curves(of: dict[int, Curve]) -> dict[int, _Curve]:
    return {key: (curve.right, curve.wrong, curve.values) for key, curve in of.items()}


def unpack(into: Calibrated, data: bytes) -> None:
    """Go on from `data`; changes nothing where it raises `CorruptFrameError`."""
    if len(data) > LARGEST_STATE:
        raise CorruptFrameError(f"a calibration state of {len(data)} bytes is too large: delete it, it is learned anew")
    try:
        state = _decode(data)
        _check(into, state)
        fresh = type(into)(
            into.max_error,
            into.confidence_level,
            into.check_share,
            own_evidence=into.own_evidence,
            neighbourhoods=into.neighbourhoods,
        )
        _fill(fresh, state)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptFrameError(f"not the state of a calibration: {error}; delete it, it is learned anew") from error
    into.__dict__.update(fresh.__dict__)


def _check(into: Calibrated, state: _State) -> None:
    if (state.kind, state.version) != (KIND, VERSION):
        raise ValueError(f"{state.kind!r} of version {state.version}")
    if set(state.counts) != set(into.counts) or not all(0 <= count < 1 << 60 for count in state.counts.values()):
        raise ValueError("counts")
    if len(state.tests) != len(into.tests) or len(state.caught) != into.served_bound.SHARES:
        raise ValueError("tests")
    if not 0 <= state.hits < 1 << 60 or not all(0 <= count <= state.hits for count in state.caught):
        raise ValueError("hits")
    if len(state.nears) != NEARS * CLASSES or not all(
        0 <= count < MOST_COUNT for near in state.nears for count in near
    ):
        raise ValueError("nearness")
    _check_curves(state.mixed, NEARS)
    _check_curves(state.curves, NEARS * WORDS)
    if not all(kind % WORDS == 0 or kind // WORDS in state.mixed for kind in state.curves):
        raise ValueError("curves of some differences and none of all")
    if not all(len(wording) == len(home) == WORDING for wording, home in state.homes):
        raise ValueError("a home")
    if len(state.priors) != len(into.evidence.priors):
        raise ValueError("priors")
    for record in state.records:
        if (
            len(record.name) not in (WORDING + 1, 2 * WORDING + 1)
            or not 0 <= record.age <= state.age
            or not 0 <= record.seen < MOST_COUNT
            or not 0 <= record.right < MOST_COUNT
            or not 0 <= record.owed < 1 << 40
            or not 0 <= record.surprises < 1 << 40
        ):
            raise ValueError("a neighbourhood")


def _check_curves(curves: dict[int, _Curve], most: int) -> None:
    for key, (right, wrong, values) in curves.items():
        if not 0 <= key < most or not len(right) == len(wrong) == len(values) == BINS:
            raise ValueError("curves")
        if not all(0 <= count < MOST_COUNT for count in (*right, *wrong)) or not all(0 < at < 1 for at in values):
            raise ValueError("a curve")


def _fill(into: Calibrated, state: _State) -> None:
    evidence = into.evidence
    evidence.age = state.age
    for prior, weights in zip(evidence.priors, state.priors, strict=True):
        prior.weights = _weights(weights)
    evidence.general.usual = [list(near) for near in state.nears]
    _fill_curves(evidence, state)
    evidence.homes = dict(state.homes[-into.neighbourhoods :])
    for one in state.records[-into.neighbourhoods :]:
        evidence.records[one.name] = record = Record(one.age, _weights(one.weights))
        record.seen, record.right, record.owed, record.surprises = one.seen, one.right, one.owed, one.surprises
    into.counts = dict(state.counts)
    if not state.settings.certify_like(_settings(into)):
        return
    for test, stored in zip(into.tests, state.tests, strict=True):
        if not stored.seen <= stored.total < 1 << 60:
            raise ValueError("outcomes")
        test.resume(stored.logs, stored.seen, stored.wrong, stored.tries)
        test.total = stored.total
    into.drift.resume(state.drift)
    if state.settings.check_share == into.check_share:  # else the account begins with nothing: all is checked at first
        into.ledger.resume(state.credit, state.alert)
        into.served_bound.hits, into.served_bound.caught = state.hits, list(state.caught)
    into.reopen()
    into.counts = dict(state.counts)


def _fill_curves(evidence: Evidence, state: _State) -> None:
    for curves, stored in ((evidence.general.mixed, state.mixed), (evidence.general.curves, state.curves)):
        for key, (right, wrong, values) in stored.items():
            curves[key] = curve = Curve(right, wrong)
            curve.values = values


def _weights(data: bytes) -> array[float]:
    """A posterior; raises `ValueError` for what is none."""
    if len(data) != _WEIGHTS.size:
        raise ValueError("a posterior of another grid")
    weights = array("d", _WEIGHTS.unpack(data))
    if not all(0 < weight <= 1 for weight in weights) or abs(sum(weights) - 1) > 1e-6:
        raise ValueError("a posterior")
    return weights
