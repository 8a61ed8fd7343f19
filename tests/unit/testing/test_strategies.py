"""The strategies make what they promise."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from mmcache.codecs.pipeline import freeze, thaw
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.testing import make_key
from mmcache.testing.strategies import frames, keys, values


@given(keys())
def test_keys_are_keys(key: Key) -> None:
    assert Key.parse(str(key)) == key


@given(frames())
def test_frames_survive_being_written(frame: Frame) -> None:
    parsed = Frame.parse(frame.to_bytes())
    assert parsed.header == frame.header
    assert parsed.intact()
    assert thaw(parsed).value() == bytes(frame.payload)


@given(values())
def test_values_can_be_stored(value: Any) -> None:
    frame = freeze(
        value, key=make_key(1), signature=Signature(model_version="1"), modality="tensor", tenant="t", namespace="n",
        cost=0.0, created=0.0,
    )  # fmt: skip
    thaw(Frame.parse(frame.to_bytes())).value()
