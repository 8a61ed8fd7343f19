"""Sketches of pictures: what they let pass, what not, and what they say of pictures that cannot be judged."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.likeness.base import Nearness
from mmcache.likeness.picture import DIMENSIONS, LEAST_PIXELS, PictureSketch, compare, describe
from mmcache.model.errors import AssetError, CorruptFrameError

Image = pytest.importorskip("PIL.Image", reason="pictures need Pillow")

from mmcache.lab import data, edited_pictures  # noqa: E402  (they need Pillow)

Levels = npt.NDArray[np.uint8]


def scene(seed: int, width: int = 320, height: int = 240) -> Levels:
    """Smooth colours with a few sharp boxes: a picture that no other seed gives."""
    random = np.random.default_rng(seed)
    x, y = np.linspace(0, 1, width), np.linspace(0, 1, height)[:, None]
    planes = [
        128 + 60 * np.sin(a * 6 * x + b * 5 * y + c) + 30 * np.cos(b * 9 * x - a * 8 * y)
        for a, b, c in random.uniform(0.3, 1.5, (3, 3))
    ]
    found = np.clip(np.stack(planes, axis=2), 0, 255).astype(np.uint8)
    for _ in range(4):
        left, top = random.integers(0, width * 3 // 4), random.integers(0, height * 3 // 4)
        found[top : top + height // 6, left : left + width // 7] = random.integers(0, 256, 3)
    return np.asarray(found)


def image(seed: int, width: int = 320, height: int = 240) -> Any:
    return Image.fromarray(scene(seed, width, height))


def nearness(one: Any, other: Any) -> Nearness:
    return compare(describe(one), describe(other))


@pytest.fixture(scope="module")
def drawings() -> list[Any]:
    try:
        paths = data.shapes()[:40]
    except AssetError as error:
        pytest.skip(str(error))
    return [Image.open(path).convert("RGB") for path in paths]


@pytest.mark.parametrize("seed", range(3))
def test_saved_again_or_scaled_is_reencoded(seed: int) -> None:
    picture = image(seed)
    said = {name: nearness(copy, picture) for name, copy in edited_pictures.reencoded(picture)}
    assert set(said.values()) == {Nearness.REENCODED}, said


@pytest.mark.parametrize("seed", range(3))
def test_slight_crops_are_trimmed(seed: int) -> None:
    picture = image(seed)
    copies = edited_pictures.cropped(picture, np.random.default_rng(seed))
    said = {name: nearness(copy, picture) for name, copy in copies if not name.endswith("-1")}
    assert set(said.values()) == {Nearness.TRIMMED}, said


def test_more_than_a_tenth_off_a_side_is_another_picture() -> None:
    picture = image(0)
    assert nearness(picture.crop((48, 0, 320, 240)), picture) is Nearness.UNLIKE
    assert nearness(picture.crop((30, 22, 290, 218)), picture) is Nearness.UNLIKE  # 9 % all round: a third is gone


@pytest.mark.parametrize("seed", range(3))
def test_changes_are_unlike(seed: int) -> None:
    picture = image(seed)
    said = {
        name: nearness(other, picture) for name, other in edited_pictures.changed(picture, np.random.default_rng(seed))
    }
    assert len(said) == 6
    assert set(said.values()) == {Nearness.UNLIKE}, said


def test_stretching_is_another_picture() -> None:
    picture = image(0)
    assert nearness(picture.resize((320, 300)), picture) is Nearness.UNLIKE


def test_other_scenes_are_unlike() -> None:
    sketches = [describe(scene(seed)) for seed in range(40)]
    assert {compare(a, b) for i, a in enumerate(sketches) for b in sketches[:i]} == {Nearness.UNLIKE}


def test_one_coloured_shape_on_plain_paper(drawings: list[Any]) -> None:
    """The hard case: hardly any detail, and one shape decides the answer."""
    for drawing in drawings:
        forms = list(edited_pictures.redrawn(drawing).items())
        box = np.nonzero((np.asarray(forms[0][1]) != np.asarray(forms[0][1])[0, 0]).any(axis=(1, 2)))[0]
        for i, (name, one) in enumerate(forms):
            for other_name, other in forms[:i]:
                if "triangle" in (name, other_name) or len(box) >= 24:
                    assert nearness(one, other) is Nearness.UNLIKE, (name, other_name)
    sketches = [describe(drawing) for drawing in drawings]
    assert {compare(a, b) for i, a in enumerate(sketches) for b in sketches[:i]} == {Nearness.UNLIKE}
    for drawing, sketch in zip(drawings, sketches, strict=True):
        assert compare(describe(edited_pictures.saved(drawing, "JPEG", quality=75)), sketch) is Nearness.REENCODED


def test_a_shape_in_another_colour_or_elsewhere_is_unlike() -> None:
    def drawn(colour: tuple[int, int, int], left: int) -> Levels:
        sheet = np.full((64, 64, 3), 240, np.uint8)
        sheet[20:44, left : left + 20] = colour
        return sheet

    red = drawn((255, 0, 0), 10)
    assert nearness(drawn((0, 0, 255), 10), red) is Nearness.UNLIKE
    assert nearness(drawn((255, 0, 0), 24), red) is Nearness.UNLIKE
    assert nearness(drawn((255, 0, 0), 12), red) is Nearness.TRIMMED  # a shift by 3 %: the paper is plain


def test_arrays_and_images_have_one_sketch() -> None:
    for size in ((320, 240), (1500, 1100)):
        levels = scene(1, *size)
        assert describe(levels) == describe(Image.fromarray(levels)) == describe(np.moveaxis(levels, 2, 0))
    grey = scene(1)[:, :, 0]
    assert describe(grey) == describe(Image.fromarray(grey)) == describe(grey[:, :, None])
    assert nearness(grey, np.repeat(grey[:, :, None], 3, axis=2)) is Nearness.REENCODED


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV"])
@pytest.mark.parametrize("size", [(320, 240), (1000, 900)])
def test_modes_of_pillow(mode: str, size: tuple[int, int]) -> None:
    picture = image(2, *size).convert(mode)
    sketch = describe(picture)
    assert sketch.comparable
    assert (sketch.width, sketch.height) == size
    if mode not in ("1", "L", "LA", "P"):
        assert compare(sketch, describe(image(2, *size))) is Nearness.REENCODED


@pytest.mark.parametrize("mode", ["LAB", "I"])
def test_modes_whose_looks_are_not_known(mode: str) -> None:
    picture = Image.new(mode, (64, 64))
    assert not describe(picture).comparable


def test_kinds_of_numbers_do_not_mix() -> None:
    levels = scene(3)
    shares = levels.astype(np.float32) / 255
    deep = levels.astype(np.uint16) * 257
    assert nearness(shares, shares * np.float32(0.999)) is Nearness.REENCODED
    assert nearness(levels, shares) is Nearness.UNLIKE
    assert nearness(levels, deep) is Nearness.UNLIKE
    assert describe(shares).luma == describe(levels).luma == describe(deep).luma
    assert not describe(shares * 2 - 1).comparable  # normalised: looks unknown
    assert not describe(np.full((64, 64), np.nan)).comparable


def test_transparency_counts() -> None:
    levels = scene(4)
    alpha = np.full((240, 320, 1), 255, np.uint8)
    opaque = np.concatenate([levels, alpha], axis=2)
    assert describe(opaque) == describe(levels)
    holed = opaque.copy()
    holed[60:120, 80:160, 3] = 0
    assert nearness(opaque, holed) is Nearness.UNLIKE
    elsewhere = opaque.copy()
    elsewhere[100:160, 80:160, 3] = 0
    assert nearness(holed, elsewhere) is Nearness.UNLIKE
    hidden = holed.copy()
    hidden[60:120, 80:160, :3] = 9
    assert nearness(holed, hidden) is Nearness.REENCODED  # what is behind a hole cannot be seen


@pytest.mark.parametrize(
    "picture",
    [
        np.full((100, 100, 3), 77, np.uint8),
        np.zeros((1, 1), np.uint8),
        scene(0, LEAST_PIXELS - 1, 40),
        scene(0, 1400, 200),
        np.zeros((0, 5), np.uint8),
        np.zeros((4, 4, 4, 4), np.uint8),
        np.zeros((30, 30), np.complex64),
        np.zeros((50, 60, 7), np.uint8),
    ],
    ids=["blank", "1 pixel", "tiny", "long", "nothing", "4-dimensional", "complex", "7 channels"],
)
def test_what_cannot_be_judged_is_like_nothing(picture: Any) -> None:
    sketch = describe(picture)
    assert not sketch.comparable
    assert compare(sketch, sketch) is Nearness.UNLIKE
    assert compare(sketch, describe(scene(0))) is Nearness.UNLIKE
    assert not sketch.vector.any()
    assert PictureSketch.from_bytes(sketch.to_bytes()) == sketch


def test_huge_pictures_are_sampled() -> None:
    large = image(5, 2400, 1800)
    small = large.resize((800, 600), Image.Resampling.LANCZOS)
    assert nearness(small, large) is Nearness.REENCODED
    assert nearness(large.crop((120, 0, 2400, 1800)), small) is Nearness.TRIMMED


def test_a_thumbnail_is_another_picture() -> None:
    picture = image(5, 1200, 900)
    assert nearness(picture.resize((400, 300), Image.Resampling.LANCZOS), picture) is Nearness.REENCODED
    assert nearness(picture.resize((240, 180), Image.Resampling.LANCZOS), picture) is Nearness.UNLIKE


def test_vectors_find_crops_and_copies() -> None:
    pictures = [image(seed) for seed in range(30)]
    known = np.stack([describe(picture).vector for picture in pictures])
    assert known.shape == (30, DIMENSIONS)
    assert known.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(known, axis=1), 1, atol=1e-5)
    for i, picture in enumerate(pictures):
        for _, copy in edited_pictures.cropped(picture, np.random.default_rng(i)):
            assert int((known @ describe(copy).vector).argmax()) == i


sizes = st.sampled_from([(16, 16), (40, 30), (64, 64), (90, 200), (160, 120), (700, 500)])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 50), st.integers(0, 50), sizes, st.integers(0, 8), st.booleans())
def test_comparing_is_symmetric_reflexive_and_repeatable(
    seed: int, other_seed: int, size: tuple[int, int], trim: int, same: bool
) -> None:
    one = describe(scene(seed, *size))
    other = describe(scene(seed if same else other_seed, *size)[trim:, : size[0] - trim // 2])
    assert compare(one, one) is (Nearness.REENCODED if one.comparable else Nearness.UNLIKE)
    assert compare(one, other) is compare(other, one) is compare(one, other)
    assert describe(scene(seed, *size)) == one


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 50), sizes)
def test_sketches_survive_bytes(seed: int, size: tuple[int, int]) -> None:
    sketch = describe(scene(seed, *size))
    again = PictureSketch.from_bytes(sketch.to_bytes())
    assert again == sketch
    assert (again.vector == sketch.vector).all()
    assert len(sketch.to_bytes()) < 8000


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(junk: bytes) -> None:
    with pytest.raises(CorruptFrameError):
        PictureSketch.from_bytes(junk)


@pytest.mark.parametrize(
    "change",
    [{"side": 32}, {"luma": b"x"}, {"version": 2}, {"width": -1}, {"side": 48}, {"alpha": b"abc"}, {"kind": 7}],
)
def test_sketches_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    fields = {name: getattr(describe(scene(0)), name) for name in PictureSketch.__struct_fields__} | change
    with pytest.raises(CorruptFrameError):
        PictureSketch.from_bytes(msgspec.msgpack.encode(list(fields.values())))
