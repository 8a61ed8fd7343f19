"""A LLaVA made from configurations: CLIP (12 layers of 768, 336², 576 rows) and Llama (2 of 256), with random weights.

A real engine runs it like any model; what it says means nothing, but depends on every pixel. Runs in the engines'
environment: `python -m mmcache.lab.engines.llava FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

WORDS = ("<pad>", "<s>", "</s>", "<unk>", "<image>", *(f"w{i}" for i in range(1000)))
ROWS, WIDTH = 576, 256
"""Of its encoder's output."""
SIDE = 336


def build(folder: Path, seed: int = 0) -> None:
    """Write the model, its tokenizer and its processor to `folder`."""
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    vision = CLIPVisionConfig(
        hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, image_size=SIDE,
        patch_size=14, projection_dim=512,
    )  # fmt: skip
    text = LlamaConfig(
        hidden_size=WIDTH, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        vocab_size=1024, max_position_embeddings=2048, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    config = LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=WORDS.index("<image>"), vision_feature_layer=-2,
        vision_feature_select_strategy="default", tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = LlavaForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(3)  # as they are initialised, answers would hardly depend on the picture
    model.to(torch.bfloat16).save_pretrained(folder)
    weights = folder / "model.safetensors"
    save_file({_named(name): value for name, value in load_file(weights).items()}, weights, metadata={"format": "pt"})
    _processor().save_pretrained(folder)


def _named(name: str) -> str:
    """As the engine's loader calls it."""
    inner = name.removeprefix("vision_tower.")
    return name if inner == name or inner.startswith("vision_model.") else f"vision_tower.vision_model.{inner}"


def _processor() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import CLIPImageProcessor, LlavaProcessor, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>",
        additional_special_tokens=["<image>"],
    )  # fmt: skip
    pictures = CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    return LlavaProcessor(
        image_processor=pictures, tokenizer=tokenizer, patch_size=14, vision_feature_select_strategy="default",
        image_token="<image>", num_additional_image_tokens=1,
        chat_template="{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }} {% else %}"
        "{% for c in m['content'] %}{% if c['type'] == 'text' %}{{ c['text'] }} {% else %}<image> {% endif %}"
        "{% endfor %}{% endif %}{% endfor %}",
    )  # fmt: skip


if __name__ == "__main__":
    build(Path(sys.argv[1]))
