"""Every known class of tower: the cache gives what the tower gives, whatever of a batch it has seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.integrations import transformers_world as towers
from tests.unit.integrations.transformers_world import torch, transformers

from mmcache import Cache
from mmcache.integrations.transformers import Stacked, cache_vision_tower
from mmcache.integrations.transformers.towers import KNOWN
from mmcache.model.errors import SettingsError

CLOSE = 1e-5
"""Absolute; what a matrix product may differ by when its batch has another size."""


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield


def leaves(output: Any) -> Iterator[tuple[str, Any]]:
    for key, value in output.items():
        for leaf in value if isinstance(value, tuple | list) else [value]:
            yield key, leaf


def agree(ours: Any, theirs: Any, within: float = 0.0) -> None:
    """Same class, keys, shapes, dtypes and devices; numbers equal, or `within` of each other."""
    assert type(ours) is type(theirs)
    assert list(ours) == list(theirs)
    for (key, one), (_, other) in zip(leaves(ours), leaves(theirs), strict=True):
        assert (one is None) == (other is None), key
        if one is not None:
            assert (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device), key
            assert float((one.float() - other.float()).abs().max()) <= within, key


@pytest.mark.parametrize("flags", [{}, {"output_hidden_states": True}, {"output_hidden_states": [-2]}], ids=str)
@pytest.mark.parametrize("name", sorted(towers.STACKED))
def test_a_tower_of_stacked_pictures(name: str, flags: dict[str, Any]) -> None:
    tower, pictures = towers.made(name, towers.STACKED[name]()), towers.pictures(4)
    plain = tower(pictures, **flags)
    with Cache(memory="64MiB") as cache, cache_vision_tower(tower, cache, guard=False) as handle:
        agree(tower(pictures[:2], **flags), tower(pictures[:2], **flags))
        agree(tower(pictures, **flags), plain, CLOSE)  # two seen before, two not
        agree(tower(pictures[[3, 0, 3]], **flags), tower(pictures[[3, 0, 3]], **flags))
        assert handle.stats().computed == 4
        assert handle.stats().aside == {}


@pytest.mark.parametrize("flags", [{}, {"output_hidden_states": True}], ids=str)
@pytest.mark.parametrize("kind", ["Qwen2VL", "Qwen2_5_VL", "Qwen3VL"])
def test_a_tower_of_patches_in_one_row(kind: str, flags: dict[str, Any]) -> None:
    """Pictures and a video (two steps of time) of different sizes."""
    tower = towers.qwen_visual(kind)
    pixels, grid = towers.qwen_pixels([(1, 4, 6), (2, 8, 4), (1, 6, 6)])
    plain = tower(pixels, grid_thw=grid, **flags)
    with Cache(memory="64MiB") as cache, cache_vision_tower(tower, cache, guard=False) as handle:
        tower(pixels[:24], grid_thw=grid[:1], **flags)
        agree(tower(pixels, grid_thw=grid, **flags), plain, CLOSE)
        agree(tower(pixels, grid_thw=grid, **flags), plain, CLOSE)
        assert handle.stats().computed == 3
        # the same numbers in another grid are another picture
        turned = torch.tensor([[1, 6, 4]])
        tower(pixels[:24], grid_thw=turned, **flags)
        assert handle.stats().computed == 4


def test_pixtral() -> None:
    config = transformers.PixtralVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8
    )
    tower, pictures = towers.made("PixtralVisionModel", config), towers.pictures(3)
    sizes = torch.tensor([[32, 32], [16, 32], [24, 8]])
    plain = tower(pictures, image_sizes=sizes, output_hidden_states=True)
    with Cache(memory="64MiB") as cache, cache_vision_tower(tower, cache, guard=False) as handle:
        tower(pictures[1:2], image_sizes=sizes[1:2], output_hidden_states=True)
        for _ in range(2):
            agree(tower(pictures, image_sizes=sizes, output_hidden_states=True), plain, CLOSE)
        assert handle.stats().computed == 3
        tower(pictures, image_sizes=[(32, 32), (16, 32), (24, 16)], output_hidden_states=True)
        assert handle.stats().computed == 4


@pytest.mark.parametrize("family", ["idefics2", "idefics3", "smolvlm"])
def test_idefics_and_its_masks(family: str) -> None:
    name = {"idefics2": "Idefics2", "idefics3": "Idefics3", "smolvlm": "SmolVLM"}[family]
    home = f"transformers.models.{family}"
    config = __import__(f"{home}.configuration_{family}", fromlist=["x"])
    models = __import__(f"{home}.modeling_{family}", fromlist=["x"])
    torch.manual_seed(0)
    made = getattr(config, f"{name}VisionConfig")(**towers.SMALL)
    tower = getattr(models, f"{name}VisionTransformer")(made).eval()
    pictures = towers.pictures(3)
    mask = torch.ones(3, 4, 4, dtype=torch.bool)
    mask[1, :, 2:] = False
    plain = tower(pictures, patch_attention_mask=mask)
    with Cache(memory="64MiB") as cache, cache_vision_tower(tower, cache, guard=False) as handle:
        for _ in range(2):
            agree(tower(pictures, patch_attention_mask=mask), plain, CLOSE)
        assert handle.stats().computed == 3
        tower(pictures, patch_attention_mask=torch.ones_like(mask))
        assert handle.stats().computed == 4, "only the picture whose mask is another one"
        assert handle.stats().aside == {}


def test_siglip2_and_its_shapes() -> None:
    config = transformers.Siglip2VisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_patches=16, patch_size=8
    )
    tower = towers.made("Siglip2VisionModel", config)
    pixels = torch.randn(2, 16, 192, generator=torch.Generator().manual_seed(0))
    mask, shapes = torch.ones(2, 16, dtype=torch.int32), torch.tensor([[4, 4], [2, 4]])
    mask[1, 8:] = 0
    plain = tower(pixels, pixel_attention_mask=mask, spatial_shapes=shapes)
    with Cache(memory="64MiB") as cache, cache_vision_tower(tower, cache, guard=False) as handle:
        for _ in range(2):
            agree(tower(pixels, pixel_attention_mask=mask, spatial_shapes=shapes), plain, CLOSE)
        tower(pixels, pixel_attention_mask=mask, spatial_shapes=torch.tensor([[4, 4], [4, 2]]))
        assert handle.stats().computed == 3


def test_every_known_class_is_tested_here() -> None:
    others = {
        "Qwen2VisionTransformerPretrainedModel", "Qwen2_5_VisionTransformerPretrainedModel", "Qwen3VLVisionModel",
        "PixtralVisionModel", "Idefics2VisionTransformer", "Idefics3VisionTransformer", "SmolVLMVisionTransformer",
        "Siglip2VisionModel",
    }  # fmt: skip
    assert others | set(towers.STACKED) == KNOWN


def test_a_tower_that_nobody_knows_is_refused_unless_its_layout_is_said() -> None:
    class Mine(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(32, 4)

        def forward(self, pixels: Any) -> Any:
            return self.inner(pixels).mean(dim=(1, 2))

    tower = Mine().eval()
    with Cache(memory="64MiB") as cache:
        with pytest.raises(SettingsError, match="no vision tower"):
            cache_vision_tower(tower, cache)
        with cache_vision_tower(tower, cache, layout=Stacked(pixels="pixels"), guard=False) as handle:
            plain = tower(towers.pictures(3))
            assert torch.equal(tower(towers.pictures(3)), plain)
            assert handle.stats().computed == 3


def test_a_tower_is_found_in_its_model() -> None:
    model = towers.llava()
    cache = Cache(memory="64MiB")
    with cache, cache_vision_tower(model, cache), pytest.raises(SettingsError, match="cached already"):
        cache_vision_tower(model.model.vision_tower, cache)
    with Cache(memory="64MiB") as cache, cache_vision_tower(model.model.vision_tower, cache):
        pass


def test_llava_generates_what_it_did() -> None:
    model, prompt = towers.llava(), towers.llava_prompt()
    plain = model.generate(**prompt, max_new_tokens=6, do_sample=False)
    two = {name: torch.cat([value, value]) for name, value in prompt.items()}
    both = model.generate(**two, max_new_tokens=6, do_sample=False)
    with Cache(memory="64MiB") as cache, cache_vision_tower(model, cache, guard=False) as handle:
        for _ in range(2):
            assert torch.equal(model.generate(**prompt, max_new_tokens=6, do_sample=False), plain)
            assert torch.equal(model.generate(**two, max_new_tokens=6, do_sample=False), both)
        assert handle.stats().computed == 1
        assert handle.stats().aside == {}
        other = towers.llava_prompt(seed=9)
        model.generate(**other, max_new_tokens=6, do_sample=False)
        assert handle.stats().computed == 2
    assert torch.equal(model.generate(**prompt, max_new_tokens=6, do_sample=False), plain)


def test_qwen_generates_what_it_did_from_a_picture_and_a_video() -> None:
    config = transformers.Qwen2VLConfig(
        text_config={
            **towers.TEXT, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
        },
        vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "patch_size": 8},
        image_token_id=61, video_token_id=62, vision_start_token_id=59, vision_end_token_id=60,
    )  # fmt: skip
    model = towers.made("Qwen2VLForConditionalGeneration", config)
    pixels, grid = towers.qwen_pixels([(1, 4, 4)])
    moving, moving_grid = towers.qwen_pixels([(2, 4, 4)], seed=8)
    ids = torch.tensor([[1, 59, *[61] * 4, 60, 59, *[62] * 8, 60, 5, 6]])
    types = torch.where(ids == 61, 1, torch.where(ids == 62, 2, 0)).int()
    prompt = {
        "input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": pixels, "image_grid_thw": grid,
        "pixel_values_videos": moving, "video_grid_thw": moving_grid, "mm_token_type_ids": types,
    }  # fmt: skip
    plain = model.generate(**prompt, max_new_tokens=5, do_sample=False)
    with Cache(memory="64MiB") as cache, cache_vision_tower(model, cache, guard=False) as handle:
        for _ in range(2):
            assert torch.equal(model.generate(**prompt, max_new_tokens=5, do_sample=False), plain)
        assert handle.stats().computed == 2
        assert handle.stats().aside == {}
