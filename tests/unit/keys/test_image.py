"""Pictures: what shares a digest, what must not, and what is refused."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, features
from tests.unit.keys.media import ContentOptions, encoded, noise, of, same

from mmcache.model.errors import InvalidInputError


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_lossless_wrappings_of_the_same_pixels_share_a_digest(mode: str, tmp_path: Path) -> None:
    picture = noise(31, 17, mode)
    file = tmp_path / "picture.png"
    file.write_bytes(encoded(picture, "PNG", compress_level=0))
    sources: list[Any] = [picture, file, str(file), picture.copy(), bytearray(encoded(picture)), Image.open(file)]
    for format, options in (("PNG", {}), ("BMP", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}), ("PPM", {}),
                            ("TGA", {}), ("PNG", {"compress_level": 9}), ("PNG", {"dpi": (300, 300)})):  # fmt: skip
        sources.append(encoded(picture, format, **options))
    if mode == "RGB":
        sources.append(encoded(picture, "WEBP", lossless=True))
    contents = [of(source) for source in sources]
    assert len({content.digest for content in contents}) == 1
    assert {len(content.digest) for content in contents} == {16}
    assert all(same(content.canonical(), picture) for content in contents)


def test_the_digest_is_stable_across_releases() -> None:
    picture = Image.frombytes("RGB", (3, 2), bytes(range(18)))
    assert of(picture).digest.hex() == "a4813fc3afaa9e9fdd6013142051c548"


def test_geometry_mode_and_pixels_count() -> None:
    raw = bytes(range(48))
    pictures = [Image.frombytes(mode, size, raw[: size[0] * size[1] * n]) for mode, n, sizes in (
        ("L", 1, [(2, 8), (8, 2), (4, 4), (16, 1), (1, 16)]),
        ("RGB", 3, [(2, 8), (4, 4)]), ("YCbCr", 3, [(4, 4)]), ("HSV", 3, [(4, 4)]), ("LAB", 3, [(4, 4)]),
        ("RGBA", 4, [(2, 6), (3, 4)]), ("CMYK", 4, [(3, 4)]), ("I", 4, [(3, 4)]), ("F", 4, [(3, 4)]),
        ("LA", 2, [(4, 4)]), ("I;16", 2, [(4, 4)]),
    ) for size in sizes]  # fmt: skip
    pictures += [Image.frombytes("L", (4, 4), bytes(15) + b"\1"), Image.frombytes("L", (4, 4), bytes(16))]
    assert len({of(picture).digest for picture in pictures}) == len(pictures)
    for picture in pictures:
        assert same(of(picture).canonical(), picture)


def test_another_realm_has_other_digests() -> None:
    assert of(noise(3, 3)).digest != of(noise(3, 3), salt=bytes(32)).digest


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["PNG", "TIFF", "WEBP"])
def test_exif_orientation_is_applied_to_key_and_model_alike(orientation: int, format: str) -> None:
    upright = noise(7, 4)
    inverse = [None, 0, 3, 1, 5, 2, 6, 4][orientation - 1]
    stored = upright if inverse is None else upright.transpose(Image.Transpose(inverse))
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = of(encoded(stored, format, exif=exif, **({"lossless": True} if format == "WEBP" else {})))
    assert content.digest == of(upright).digest
    assert same(content.canonical(), upright)


def test_the_model_gets_nothing_but_pixels() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "a secret description"
    tagged = encoded(noise(5, 4), "PNG", exif=exif, dpi=(72, 72))
    for source in (tagged, Image.open(io.BytesIO(tagged)), Image.open(io.BytesIO(encoded(noise(5, 4), dpi=(9, 9))))):
        given = of(source).canonical()
        assert given.info == {}
        assert len(given.getexif()) == 0
        assert given.size in ((4, 5), (5, 4))


@pytest.mark.parametrize("orientation", [0, 9, 255])
def test_a_meaningless_orientation_changes_nothing(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert of(encoded(noise(5, 4), exif=exif)).digest == of(noise(5, 4)).digest


def test_palettes_and_transparent_colours_become_what_they_show() -> None:
    paletted = noise(9, 9).quantize(16)
    assert of(encoded(paletted)).digest == of(paletted.convert("RGB")).digest
    shuffled = paletted.remap_palette(list(reversed(range(16))))
    assert of(shuffled).digest == of(paletted).digest
    clear = encoded(paletted, transparency=3)
    assert of(clear).canonical().mode == "RGBA"
    assert of(clear).digest != of(paletted).digest
    keyed = encoded(noise(4, 4, "L"), transparency=noise(4, 4, "L").getpixel((0, 0)))
    assert of(keyed).canonical().mode == "RGBA"


def test_one_bit_sixteen_bits_cmyk_and_premultiplied() -> None:
    black_white = noise(9, 5, "L").convert("1")
    assert of(encoded(black_white)).canonical().mode == "L"
    assert of(black_white).digest == of(black_white.convert("L")).digest
    values = np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000
    deep = Image.fromarray(values)
    assert deep.mode == "I;16"
    assert of(encoded(deep)).digest == of(deep).digest == of(encoded(deep, "TIFF")).digest
    assert np.array_equal(np.asarray(of(encoded(deep)).canonical()), values)
    big = Image.frombytes("I;16B", (4, 3), values.astype(">u2").tobytes())
    assert of(big).digest == of(deep).digest
    assert of(deep).digest != of(deep.convert("I")).digest
    cmyk = noise(4, 4, "CMYK")
    assert of(encoded(cmyk, "TIFF")).digest == of(cmyk).digest
    assert of(cmyk).canonical().mode == "CMYK"
    assert of(noise(4, 4, "RGBA").convert("RGBa")).canonical().mode == "RGBA"


def test_a_jpeg_of_another_quality_has_other_pixels() -> None:
    assert (
        of(encoded(noise(16, 16), "JPEG", quality=90)).digest != of(encoded(noise(16, 16), "JPEG", quality=50)).digest
    )


def test_arrays_keep_their_own_identity() -> None:
    values = np.asarray(noise(4, 4))
    content = of(values)
    assert content.digest != of(noise(4, 4)).digest  # the model gets an array, not a picture
    assert content.digest != of(values, "tensor").digest
    assert content.decoder == ""
    assert np.array_equal(content.canonical(), values)
    assert content.digest != of(values.astype(np.int16)).digest


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_animations_are_refused_and_one_frame_is_not(format: str) -> None:
    raw = encoded(noise(8, 8), format, save_all=True, append_images=[noise(8, 8, seed=1)])
    with pytest.raises(InvalidInputError, match="modality='video'"):
        of(raw)
    opened = Image.open(io.BytesIO(raw))
    with pytest.raises(InvalidInputError, match="copy"):
        of(opened)
    opened.seek(1)
    assert of(opened.copy()).digest


def test_a_still_gif_is_a_picture() -> None:
    still = noise(8, 8).quantize(8)
    assert of(encoded(still, "GIF")).digest == of(still).digest


def test_of_a_phones_multi_picture_jpeg_the_first_counts() -> None:
    two = encoded(noise(16, 16), "MPO", save_all=True, append_images=[noise(8, 8)])
    assert of(two).canonical().size == (16, 16)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, about damaged metadata
@pytest.mark.parametrize("format", ["PNG", "JPEG", "BMP", "TIFF", "WEBP", "GIF"])
def test_every_truncation_is_refused_or_whole(format: str) -> None:
    picture = noise(24, 24)
    raw = encoded(picture, format)
    whole = of(raw).digest
    for end in {1, 2, 9, len(raw) // 4, len(raw) // 2, len(raw) * 3 // 4, len(raw) - 5}:
        try:
            found = of(raw[:end]).digest
        except InvalidInputError:
            continue
        assert found == whole  # only padding was cut off


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_bytes_never_escape_the_error_tree() -> None:
    generator = np.random.default_rng(7)
    formats = ["PNG", "JPEG", "BMP", "TIFF", "WEBP", "GIF", "TGA", "PPM", "JPEG2000", "PCX", "ICO"]
    for format in [*formats, *(["AVIF"] if features.check("avif") else [])]:
        raw = bytearray(encoded(noise(32, 32), format))
        for _ in range(40):
            damaged = bytearray(raw)
            for place in generator.integers(0, min(len(raw), 200), 4):
                damaged[place] = generator.integers(0, 256)
            try:
                of(bytes(damaged), options=ContentOptions(max_pixels=1 << 16))
            except InvalidInputError:
                continue


def test_bombs_are_refused_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = encoded(Image.new("L", (200, 200)))
    with pytest.raises(InvalidInputError, match="max_pixels"):
        of(raw, options=ContentOptions(max_pixels=39_999))
    with pytest.raises(InvalidInputError, match="max_pixels"):
        of(Image.new("L", (200, 200)), options=ContentOptions(max_pixels=39_999))
    with pytest.raises(InvalidInputError, match="max_encoded_bytes"):
        of(raw, options=ContentOptions(max_encoded_bytes=len(raw) - 1))
    for limit in (30_000, 10_000):  # Pillow warns above its limit, and refuses above twice that
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(InvalidInputError, match="bomb"):
            of(raw)


def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"
    hostile: list[Any] = [Image.new("RGB", (0, 5)), b"", b"not a picture", postscript, 7, None]
    hostile += [tmp_path, tmp_path / "absent", "a\0b", pipe]
    for source in hostile:
        with pytest.raises(InvalidInputError):
            of(source)


def test_a_picture_that_is_drawn_on_meanwhile_is_refused() -> None:
    picture = noise(6, 6)
    content = of(picture)
    picture.putpixel((0, 0), (1, 2, 3))
    with pytest.raises(InvalidInputError, match="changed"):
        content.canonical()


def test_a_file_that_is_replaced_meanwhile_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    file.write_bytes(encoded(noise(6, 6)))
    content = of(file)
    file.write_bytes(encoded(noise(6, 6, seed=1)))
    assert same(content.canonical(), noise(6, 6))
    assert of(file).digest != content.digest


def test_many_threads_agree() -> None:
    raw = encoded(noise(64, 64))
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(of(raw).digest)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_decoder_is_named() -> None:
    assert of(noise(2, 2)).decoder.startswith("pillow-")
