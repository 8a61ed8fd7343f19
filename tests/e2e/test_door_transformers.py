"""The door of transformers, with the real package: three lines, and a hit after a restart of the process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

PROGRAM = """
import json, sys
import torch, transformers
from mmcache import Cache
from mmcache.integrations.transformers import cache_vision_tower

torch.manual_seed(int(sys.argv[2]))
small = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2)
model = transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(
    vision_config=transformers.CLIPVisionConfig(**small, image_size=32, patch_size=8),
    text_config=transformers.LlamaConfig(**small, vocab_size=64, num_key_value_heads=2, pad_token_id=0,
                                         bos_token_id=1, eos_token_id=2),
    image_token_index=63)).eval()
calls = []
layer = type(model.model.vision_tower.encoder.layers[0])
plain = layer.forward
def counted(self, *args, **kwargs):
    calls.append(1)
    return plain(self, *args, **kwargs)
layer.forward = counted
ids = torch.tensor([[1, *[63] * 16, 5, 6, 7]])
pictures = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(7))
with Cache(sys.argv[1], tenant=sys.argv[3]) as cache:
    cache_vision_tower(model, cache)
    with torch.inference_mode():
        said = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pictures,
                              max_new_tokens=5, do_sample=False)
print(json.dumps({"said": said.tolist(), "tower": len(calls)}))
"""


def process(root: Path, seed: int = 0, tenant: str = "acme") -> dict[str, Any]:
    command = [sys.executable, "-c", PROGRAM, str(root), str(seed), tenant]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_picture_seen_before_the_restart_does_not_reach_the_tower(tmp_path: Path) -> None:
    first, again = process(tmp_path), process(tmp_path)
    assert first["tower"] > 0
    assert again == {"said": first["said"], "tower": 0}
    assert process(tmp_path, tenant="another")["tower"] > 0, "another tenant finds nothing"
    assert process(tmp_path, seed=1)["tower"] > 0, "other weights find nothing"
