"""A vision-language model of transformers: pictures seen before do not reach its vision tower again."""

import importlib.util
import sys

from mmcache import Cache

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
    print("this example needs torch and transformers")
    sys.exit(0)

import torch
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

from mmcache.integrations.transformers import cache_vision_tower

small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
vision = CLIPVisionConfig(**small, image_size=64, patch_size=16)
text = LlamaConfig(**small, vocab_size=100, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
model = LlavaForConditionalGeneration(LlavaConfig(vision_config=vision, text_config=text, image_token_index=99)).eval()

words = torch.tensor([[1, *[99] * 16, 7, 8, 9]])  # one picture of 4 × 4 patches, then the question
prompt = {"input_ids": words, "attention_mask": torch.ones_like(words), "pixel_values": torch.randn(1, 3, 64, 64)}

with torch.inference_mode(), Cache(memory="64MiB") as cache:
    plain = model.generate(**prompt, max_new_tokens=5, do_sample=False)
    with cache_vision_tower(model, cache) as tower:
        for _ in range(3):
            assert torch.equal(model.generate(**prompt, max_new_tokens=5, do_sample=False), plain)
        print(tower.stats())  # three pictures asked for, one computed
        assert tower.stats().computed == 1
    assert torch.equal(model.generate(**prompt, max_new_tokens=5, do_sample=False), plain)
