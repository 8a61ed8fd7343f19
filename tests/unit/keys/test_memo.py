"""The memo saves decoding and never makes a wrong key."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.keys.media import ContentOptions, encoded, noise, of, same
from tests.unit.keys.test_audio_and_video import FRAMES, film, tone, wave

from mmcache.keys import image
from mmcache.keys.memo import LocalMemo
from mmcache.model.errors import InvalidInputError


class Spy(LocalMemo):
    """A memo whose entries a test can reach."""

    @property
    def entries(self) -> dict[bytes, bytes]:
        return self._held


INPUTS: list[tuple[str, bytes]] = [
    ("image", encoded(noise(8, 8))),
    ("audio", wave(tone(44100), 44100)),
    ("video", film(FRAMES)),
]


@pytest.mark.parametrize(("modality", "raw"), INPUTS, ids=["image", "audio", "video"])
def test_the_second_time_nothing_is_decoded(modality: str, raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    memo = LocalMemo()
    first = of(raw, modality, memo=memo)
    assert not first.memo_hit
    second = of(raw, modality, memo=memo)
    assert second.memo_hit
    assert second.digest == first.digest == of(raw, modality).digest
    assert second.encoded_digest == first.encoded_digest
    assert of(raw, modality).encoded_digest is None
    if modality == "video":
        assert [f.digest for f in second.frames()] == [f.digest for f in first.frames()]
    else:
        assert bytes(first.canonical().tobytes()) == bytes(second.canonical().tobytes())


def test_a_hit_decodes_only_when_the_model_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    memo, raw = LocalMemo(), encoded(noise(8, 8))
    of(raw, memo=memo)
    calls: list[int] = []
    decode = image.decode
    monkeypatch.setattr(image, "decode", lambda *a: calls.append(1) or decode(*a))  # type: ignore[func-returns-value]
    content = of(raw, memo=memo)
    assert calls == []
    assert same(content.canonical(), noise(8, 8))
    content.canonical()
    assert calls == [1]


def test_salt_modality_options_and_decoder_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    memo, raw = LocalMemo(), INPUTS[1][1]
    of(raw, "audio", memo=memo)
    assert not of(raw, "audio", memo=memo, options=ContentOptions(sample_rate=8000)).memo_hit
    assert not of(raw, "audio", memo=memo, salt=bytes(32)).memo_hit
    picture = encoded(noise(8, 8))
    of(picture, memo=memo)
    with pytest.raises(InvalidInputError):
        of(picture, "audio", memo=memo)
    with pytest.raises(InvalidInputError, match="max_pixels"):
        of(picture, memo=memo, options=ContentOptions(max_pixels=63))
    monkeypatch.setattr(image, "pillow_version", lambda: "pillow-0.0.1")
    assert not of(picture, memo=memo).memo_hit


@pytest.mark.parametrize(("modality", "raw"), INPUTS, ids=["image", "audio", "video"])
def test_damaged_and_swapped_entries_are_not_believed(modality: str, raw: bytes) -> None:
    memo = Spy()
    expected = of(raw, modality, memo=memo).digest
    (name, sealed), *_ = memo.entries.items()
    for lie in (b"", sealed[:-1], sealed[:16], sealed[16:], bytes(len(sealed)), sealed[::-1], sealed + sealed,
                bytes([sealed[0] ^ 1]) + sealed[1:], sealed[:-1] + bytes([sealed[-1] ^ 1])):  # fmt: skip
        memo.entries[name] = lie
        content = of(raw, modality, memo=memo)
        assert not content.memo_hit
        assert content.digest == expected
    other = Spy()
    of({"image": encoded(noise(8, 8, seed=9)), "audio": wave(tone(8000), 8000), "video": film(FRAMES[:2])}[modality],
       modality, memo=other)  # fmt: skip
    memo.entries[name] = next(iter(other.entries.values()))
    assert of(raw, modality, memo=memo).digest == expected


def test_a_decoder_that_changed_its_mind_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    memo, raw = LocalMemo(), encoded(noise(8, 8))
    of(raw, memo=memo)
    content = of(raw, memo=memo)
    monkeypatch.setattr(image, "decode", lambda *_: noise(8, 8, seed=5))
    with pytest.raises(InvalidInputError, match="decode to something else"):
        content.canonical()


def test_a_refused_input_is_not_remembered() -> None:
    memo = Spy()
    sources: list[Any] = [encoded(noise(8, 8))[:50], b"nothing"]
    for source in sources:
        with pytest.raises(InvalidInputError):
            of(source, memo=memo)
    assert memo.entries == {}


def test_the_local_memo_is_bounded() -> None:
    memo = Spy(limit=3)
    for number in range(9):
        memo.remember(bytes([number]), b"x")
    assert sorted(memo.entries) == [b"\6", b"\7", b"\x08"]
