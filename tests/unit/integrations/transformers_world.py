"""Tiny towers and models with random weights, built from configurations: nothing is downloaded."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
TEXT = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 64,
    "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def made(name: str, config: Any, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return getattr(transformers, name)(config).eval()


def clip(seed: int = 0) -> Any:
    return made("CLIPVisionModel", transformers.CLIPVisionConfig(**SMALL), seed)


STACKED: dict[str, Any] = {
    "Aimv2VisionModel": lambda: transformers.Aimv2VisionConfig(**SMALL),
    "CLIPVisionModel": lambda: transformers.CLIPVisionConfig(**SMALL),
    "CLIPVisionModelWithProjection": lambda: transformers.CLIPVisionConfig(**SMALL, projection_dim=16),
    "Dinov2Model": lambda: transformers.Dinov2Config(**SMALL),
    "Dinov2WithRegistersModel": lambda: transformers.Dinov2WithRegistersConfig(**SMALL),
    "DINOv3ViTModel": lambda: transformers.DINOv3ViTConfig(**SMALL),
    "IJepaModel": lambda: transformers.IJepaConfig(**SMALL),
    "SiglipVisionModel": lambda: transformers.SiglipVisionConfig(**SMALL),
    "ViTModel": lambda: transformers.ViTConfig(**SMALL),
    "InternVLVisionModel": lambda: transformers.InternVLVisionConfig(
        **SMALL | {"image_size": [32, 32], "patch_size": [8, 8]}
    ),
}


def pictures(count: int, seed: int = 1, side: int = 32) -> Any:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(seed))


def qwen_visual(kind: str) -> Any:
    if kind == "Qwen2VL":
        from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
        from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel

        torch.manual_seed(0)
        config = Qwen2VLVisionConfig(depth=2, embed_dim=32, hidden_size=32, num_heads=2, patch_size=8)
        return Qwen2VisionTransformerPretrainedModel(config).eval()
    if kind == "Qwen2_5_VL":
        from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
        from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel

        torch.manual_seed(0)
        config = Qwen2_5_VLVisionConfig(
            depth=2, hidden_size=32, intermediate_size=48, out_hidden_size=32, num_heads=2, patch_size=8,
            window_size=32, fullatt_block_indexes=[1],
        )  # fmt: skip
        return Qwen2_5_VisionTransformerPretrainedModel(config).eval()
    from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel

    torch.manual_seed(0)
    config = Qwen3VLVisionConfig(
        depth=2, hidden_size=32, intermediate_size=48, out_hidden_size=32, num_heads=2, patch_size=8,
        num_position_embeddings=64, deepstack_visual_indexes=[0],
    )  # fmt: skip
    return Qwen3VLVisionModel(config).eval()


def qwen_pixels(grids: list[tuple[int, int, int]], seed: int = 3, patch: int = 8) -> tuple[Any, Any]:
    rows = sum(t * h * w for t, h, w in grids)
    pixels = torch.randn(rows, 3 * 2 * patch * patch, generator=torch.Generator().manual_seed(seed))
    return pixels, torch.tensor(grids)


def llava() -> Any:
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**SMALL), text_config=transformers.LlamaConfig(**TEXT),
        image_token_index=63, vision_feature_layer=-2,
    )  # fmt: skip
    return made("LlavaForConditionalGeneration", config)


def llava_prompt(seed: int = 1) -> dict[str, Any]:
    """One picture (16 patches) and three words."""
    ids = torch.tensor([[1, *[63] * 16, 5, 6, 7]])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": pictures(1, seed)}
