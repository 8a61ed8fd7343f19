"""Wrapped encoders: what reaches the model, and what never does."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from mmcache import Cache, Region, Signature, UnversionedModelError


class Model:
    """Counts what it is given; the mean of each column stands for features."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.calls = 0

    def encode(self, picture: Image.Image, scale: float = 1.0) -> npt.NDArray[np.float32]:
        self.calls += 1
        self.seen.append(picture)
        means: npt.NDArray[np.float32] = np.multiply(
            np.asarray(picture.convert("RGB"), np.float32).mean(axis=(0, 1)), scale, dtype=np.float32
        )
        return means

    def encode_batch(self, pictures: list[Image.Image]) -> npt.NDArray[np.float32]:
        self.calls += 1
        self.seen.extend(pictures)
        return np.stack([np.asarray(p.convert("RGB"), np.float32).mean(axis=(0, 1)) for p in pictures])


def picture(seed: int, size: tuple[int, int] = (32, 24)) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def encoded(image: Image.Image, kind: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def test_path_bytes_and_picture_of_the_same_pixels_share_one_block(tmp_path: Path) -> None:
    model, image = Model(), picture(0)
    (tmp_path / "a.png").write_bytes(encoded(image, "PNG"))
    with Cache() as cache:
        encode = cache.wrap(model.encode, modality="image", signature="v1")
        outputs = [encode(tmp_path / "a.png"), encode(encoded(image, "BMP")), encode(encoded(image, "PNG"))]
        assert all(np.array_equal(outputs[0], other) for other in outputs)
        assert model.calls == 1


def test_another_argument_is_another_block() -> None:
    model, image = Model(), picture(0)
    with Cache() as cache:
        encode = cache.wrap(model.encode, modality="image", signature="v1")
        assert encode(image, scale=2.0)[0] == 2 * encode(image)[0]
        assert encode(image, 2.0)[0] == 2 * encode(image)[0]
        assert model.calls <= 3


def test_a_batch_sends_only_the_misses_in_one_call_and_keeps_the_order() -> None:
    model = Model()
    with Cache() as cache:
        encode = cache.wrap(model.encode, batch=model.encode_batch, modality="image", signature="v1")
        images = [picture(n) for n in range(4)]
        first = encode.batch(images[:2])
        model.seen.clear()
        second = encode.batch([images[3], images[0], images[2], images[3], images[1]], stack=True)
        assert model.calls == 2
        assert len(model.seen) == 2
        assert np.array_equal(second[1], first[0])
        assert np.array_equal(second[4], first[1])
        assert np.array_equal(second[0], second[3])
        assert encode.batch([]) == []


def test_two_functions_with_the_same_version_string_never_share() -> None:
    with Cache() as cache:
        one = cache.wrap(lambda s: f"one {s}", modality="text", signature="v1")

        def other_function(s: str) -> str:
            return f"other {s}"

        other = cache.wrap(other_function, modality="text", signature="v1")
        assert (one("x"), other("x")) == ("one x", "other x")


def test_an_unversioned_callable_is_an_error_that_says_what_to_pass() -> None:
    with Cache() as cache, pytest.raises(UnversionedModelError, match="version"):
        cache.wrap(lambda s: s, modality="text")


def test_a_misspelt_option_is_an_error_and_never_ignored() -> None:
    options: dict[str, Any] = {"modality": "text", "signature": "1", "tennant": "a"}
    with Cache() as cache:
        with pytest.raises(TypeError, match="tennant"):
            cache.wrap(len, **options)
        with pytest.raises(TypeError, match="modality"):
            cache.wrap(len, signature="1")  # type: ignore[call-overload]


def test_decorator_form() -> None:
    with Cache() as cache:

        @cache.wrap(modality="text", signature="v1")
        def shout(words: str) -> str:
            """Shout."""
            return words.upper()

        assert shout("hey") == "HEY"
        assert (shout.__name__, shout.__doc__) == ("shout", "Shout.")


def test_overlapping_crops_compute_only_the_tiles_they_do_not_share() -> None:
    model, image = Model(), picture(0, (64, 64))
    with Cache() as cache:
        encode = cache.wrap(model.encode, batch=model.encode_batch, modality="image", signature="v1")
        whole = encode.tiles(image, tile=16)
        assert whole.shape == (16, 3)
        model.seen.clear()
        part = encode.tiles(image, tile=16, box=(0, 0, 32, 32))
        assert model.seen == []
        assert part.shape == (4, 3)
        assert np.array_equal(part[0], whole[0])


def test_a_damaged_memo_never_changes_the_grid_of_tiles() -> None:
    model, image = Model(), picture(0, (64, 64))
    with Cache() as cache:
        encode = cache.wrap(model.encode, batch=model.encode_batch, modality="image", signature="v1")
        whole = encode.tiles(image, tile=16)
        for label, held in list(cache.memo._held.items()):  # type: ignore[attr-defined]
            cache.memo.remember(label, bytes(3) + b"\x10" + held[4:])
        assert np.array_equal(encode.tiles(image, tile=16), whole)


def test_a_region_is_rendered_exactly_and_is_not_the_whole() -> None:
    model, image = Model(), picture(0, (64, 48))
    with Cache() as cache:
        encode = cache.wrap(model.encode, modality="image", signature="v1")
        whole = encode(image)
        crop = encode.region(image, Region.whole(64, 48).crop((8, 8, 24, 24)))
        assert model.seen[-1].tobytes() == image.crop((8, 8, 24, 24)).tobytes()
        assert not np.array_equal(whole, crop)


def test_still_frames_of_a_video_are_computed_once() -> None:
    model, still, moving = Model(), picture(0), picture(1)
    with Cache() as cache:
        encode = cache.wrap(model.encode, batch=model.encode_batch, modality="image", signature="v1")
        assert encode.frames([still, still, moving, still]).shape == (4, 3)
        assert len(model.seen) == 2


def test_audio_segments_are_blocks() -> None:
    calls: list[int] = []

    def encode_audio(pcm: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        calls.append(len(pcm))
        return pcm[:4].copy()

    rate = 16000
    talk = np.random.default_rng(0).normal(size=rate * 3).astype(np.float32) * 0.1
    with Cache() as cache:
        encode = cache.wrap(encode_audio, modality="audio", signature="v1")
        assert len(encode.segments((talk, rate), seconds=1.0)) == 3
        longer = np.concatenate([talk, talk[:rate]])
        assert len(encode.segments((longer, rate), seconds=1.0)) == 4
        assert calls == [rate] * 3


@dataclass
class Features:
    last_hidden_state: npt.NDArray[np.float32]
    image_grid_thw: tuple[int, int, int]


def test_declared_dataclasses_come_back_as_themselves(tmp_path: Path) -> None:
    for _ in range(2):
        with Cache(tmp_path) as cache:
            encode = cache.wrap(
                lambda s: Features(np.ones((2, 3), np.float32), (1, 2, 3)),
                modality="text", signature="v1", returns=[Features],
            )  # fmt: skip
            found = encode("a")
            assert type(found) is Features
            assert found.image_grid_thw == (1, 2, 3)
            assert found.last_hidden_state.sum() == 6


def test_tensors_in_tensors_out() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    layer = torch.nn.Linear(4, 2)
    with Cache() as cache:
        encode = cache.wrap(lambda x: layer(x).detach(), modality="tensor", signature=Signature.of(layer))
        x = torch.arange(4.0)
        first, again = encode(x), encode(x)
        assert isinstance(again, torch.Tensor)
        assert torch.equal(first, again)
        again += 1  # a copy: the cache's value does not change
        assert torch.equal(first, encode(x))
        assert cache.stats().computes == 1


def test_options_change_tenant_ttl_and_bypass_per_call() -> None:
    model, image = Model(), picture(0)
    with Cache() as cache:
        encode = cache.wrap(model.encode, modality="image", signature="v1")
        encode(image)
        encode.options(tenant="other")(image)
        encode.options(bypass=True)(image)
        assert model.calls == 3
        encode(image)
        assert model.calls == 3


async def test_async_twin_runs_plain_and_coroutine_functions() -> None:
    async def embed(words: str) -> str:
        return words.upper()

    with Cache() as cache:
        encode = cache.wrap(embed, modality="text", signature="v1")
        assert await encode.a("a") == "A"
        assert await encode.a("a") == "A"
        plain = cache.wrap(lambda s: s + "!", modality="text", signature="v1")
        assert await plain.a("a") == "a!"
        assert await plain.abatch(["a", "b"]) == ["a!", "b!"]
        assert cache.stats().hits == 2


def test_the_guard_bypasses_an_encoder_that_is_cheaper_than_its_lookup() -> None:
    with Cache() as cache:
        encode = cache.wrap(len, modality="text", signature="v1")
        for n in range(300):
            assert encode(str(n)) == len(str(n))
        assert cache.stats().miss_reasons["bypassed"] > 0


def test_explain_shows_the_content_and_that_the_file_was_known(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded(picture(0), "PNG"))
    with Cache(tmp_path / "cache") as cache:
        encode = cache.wrap(Model().encode, modality="image", signature="v1")
        encode(tmp_path / "a.png")
        found = encode.explain(tmp_path / "a.png")
        assert found.verdict == "hit (memory)"
        assert found.memo_hit
        assert found.signature["decoder"].startswith("pillow")
