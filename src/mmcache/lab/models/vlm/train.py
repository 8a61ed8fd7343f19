"""Train the model: `python -m mmcache.lab.models.vlm.train`. torch is imported here and nowhere else.

Fixed seed; the frozen tokens are computed once and kept in `--cache`. Adam with decoupled decay (Loshchilov & Hutter,
2019), cosine schedule. On another processor the last bits, and so the weights, come out a little different.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from mmcache.lab import data
from mmcache.lab.data.picture_questions import asked, facts
from mmcache.lab.models.image import ImageEncoder
from mmcache.lab.models.vlm.decoder import CHANNELS, PATCHES, shapes
from mmcache.lab.models.vlm.examples import TAUGHT_STYLES, Example, of_concepts, of_shapes, split_concepts
from mmcache.lab.models.vlm.weights import FILE, save
from mmcache.lab.models.vlm.words import Words, learn

SEED = 0
WIDTH, LAYERS, HEADS, LONGEST, VOCABULARY = 128, 2, 4, 40, 1500
BATCH, PER_PICTURE, RATE, DROPOUT, STEPS = 48, 5, 1.5e-3, 0.1, 2400
MADE = (
    "DINOv2 ViT-S/14 tokens (Apache-2.0, frozen) -> decoder trained on easy-vqa 1.0 (MIT) and on emoji drawn by "
    "Noto (Apache-2.0) and Fluent (MIT), named by emojibase (MIT); seed 0, {steps} steps of 48 pictures"
)


class Lesson:
    """Pictures' tokens, float16 [n, 257, 384], and what is asked about each."""

    def __init__(self, tokens: npt.NDArray[np.float16], examples: Sequence[Sequence[Example]], words: Words) -> None:
        self.tokens = tokens
        self.examples = [[one.pieces(words) for one in of] for of in examples]

    def draw(self, random: np.random.Generator) -> tuple[Any, Any, Any]:
        """tokens [b, 256, 384], pieces [b, s, l], and where the loss counts [b, s, l - 1]."""
        import torch

        chosen = random.choice(len(self.examples), BATCH, replace=False)
        drawn = [[self.examples[one][i] for i in random.choice(len(self.examples[one]), PER_PICTURE)] for one in chosen]
        longest = max(len(pieces) for of in drawn for pieces, _ in of)
        ids = np.zeros((BATCH, PER_PICTURE, longest), np.int64)
        counts = np.zeros((BATCH, PER_PICTURE, longest - 1), np.float32)
        for i, of in enumerate(drawn):
            for j, (pieces, begin) in enumerate(of):
                ids[i, j, : len(pieces)] = pieces
                counts[i, j, begin : len(pieces) - 1] = 1
        tokens = self.tokens[np.sort(chosen)][np.argsort(np.argsort(chosen)), -PATCHES:].astype(np.float32)
        return torch.from_numpy(tokens), torch.from_numpy(ids), torch.from_numpy(counts)


def forward(w: dict[str, Any], tokens: Any, ids: Any, dropout: float) -> Any:
    """Logits [b, s, l, pieces]: what `decoder.Decoder.step` computes, for whole batches (see the parity test)."""
    import torch.nn.functional as f

    def normal(x: Any, scale: Any) -> Any:
        return f.layer_norm(x, (x.shape[-1],), scale, None, 1e-5)

    def heads(x: Any) -> Any:
        return x.reshape(*x.shape[:-1], HEADS, -1).transpose(-3, -2)

    def joined(x: Any) -> Any:
        return x.transpose(-3, -2).reshape(*x.shape[:-3], x.shape[-2], -1)

    def drop(x: Any) -> Any:
        return f.dropout(x, dropout) if dropout else x

    b, s, length = ids.shape
    patches = normal(drop(tokens) @ w["patch"] + w["patch.bias"], w["patch.norm"])
    x = drop(w["embedding"][ids] + w["positions"][:length])
    for layer in range(LAYERS):
        y = normal(x, w[f"{layer}.self.norm"])
        q, k, v = (heads(y @ w[f"{layer}.self.{part}"]) for part in ("query", "key", "value"))
        found = f.scaled_dot_product_attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), is_causal=True)
        x = x + drop(joined(found.unflatten(0, (b, s))) @ w[f"{layer}.self.out"])
        y = normal(x, w[f"{layer}.cross.norm"]).flatten(1, 2)
        q = heads(y @ w[f"{layer}.cross.query"])
        k, v = (heads(patches @ w[f"{layer}.cross.{part}"]) for part in ("key", "value"))
        found = joined(f.scaled_dot_product_attention(q, k, v))
        x = x + drop(found @ w[f"{layer}.cross.out"]).reshape(x.shape)
        y = normal(x, w[f"{layer}.wide.norm"])
        x = x + drop((y @ w[f"{layer}.wide.in"] + w[f"{layer}.wide.bias"]).relu() @ w[f"{layer}.wide.out"])
    return normal(x, w["norm"]) @ w["embedding"].T


def start(pieces: int) -> dict[str, Any]:
    """Weights before training."""
    import torch

    found = {}
    for name, shape in shapes(pieces, LAYERS, WIDTH, LONGEST).items():
        if name.endswith("norm"):
            first = torch.ones(shape)
        elif name.endswith("bias"):
            first = torch.zeros(shape)
        else:
            spread = 0.02 if name in ("embedding", "positions") else shape[0] ** -0.5
            first = torch.randn(shape) * spread
        found[name] = first.requires_grad_()
    return found


def train(lessons: Sequence[Lesson], pieces: int, steps: int) -> dict[str, npt.NDArray[np.float16]]:
    """The weights after `steps` steps; lessons take turns."""
    import torch
    import torch.nn.functional as f

    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    random = np.random.default_rng(SEED)
    w = start(pieces)
    decayed = [value for name, value in w.items() if value.ndim > 1 and name not in ("embedding", "positions")]
    others = [value for value in w.values() if not any(value is one for one in decayed)]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, steps, pct_start=0.05)
    means = [0.0] * len(lessons)
    for step in range(steps):
        which = step % len(lessons)
        tokens, ids, counts = lessons[which].draw(random)
        logits = forward(w, tokens, ids, DROPOUT)[:, :, :-1]
        losses = f.cross_entropy(logits.flatten(0, 2), ids[:, :, 1:].flatten(), reduction="none")
        loss = (losses * counts.flatten()).sum() / counts.sum()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(w.values()), 1.0)
        optimiser.step()
        schedule.step()
        means[which] += (loss.item() - means[which]) * (0.05 if step > 40 else 0.5)
        if step % 50 == 0 or step == steps - 1:
            print(
                f"step {step}: mean losses {[round(mean, 4) for mean in means]}, {process_time():.0f} CPU s", flush=True
            )
    return {name: value.detach().numpy().astype(np.float16) for name, value in w.items()}


def tokens_of(name: str, pictures: Sequence[Callable[[], Image.Image]], cache: Path) -> npt.NDArray[np.float16]:
    """float16 [n, 257, 384] of DINOv2, from `cache` where they are already."""
    path = cache / f"{name}.npy"
    if not path.exists():
        part = path.with_suffix(".part")
        tokens = np.lib.format.open_memmap(part, "w+", np.float16, (len(pictures), PATCHES + 1, CHANNELS))
        encoder = ImageEncoder()
        for begin in range(0, len(pictures), 8):
            tokens[begin : begin + 8] = encoder.encode_batch([make() for make in pictures[begin : begin + 8]])
            if begin % 400 == 0:
                print(f"{name}: {begin} of {len(pictures)} pictures", flush=True)
        tokens.flush()
        part.rename(path)
    found: npt.NDArray[np.float16] = np.load(path, mmap_mode="r")
    return found


def main() -> None:
    """Compute the tokens, train, write the weights."""
    parser = argparse.ArgumentParser(description="Train the small vision-language model.")
    parser.add_argument("--cache", type=Path, default=Path("build/vlm"), help="folder of the frozen tokens (1.3 GB)")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--to", type=Path, default=FILE, help="the weights file to write")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    known, _ = split_concepts()
    shapes_tokens = tokens_of(
        "easy-vqa-train", [partial(Image.open, path) for path in data.shapes("train")], options.cache
    )
    emoji_tokens = tokens_of(
        "emoji-train", [one.pictures[style] for one in known for style in TAUGHT_STYLES], options.cache
    )
    about_shapes = of_shapes(asked("train"), facts("train"), len(shapes_tokens))
    about_emoji = [examples for examples in of_concepts(known) for _ in TAUGHT_STYLES]
    texts = [text for of in about_emoji[:: len(TAUGHT_STYLES)] for one in of for text in (one.question, one.answer)]
    texts += [text for of in about_shapes for one in of for text in (one.question, one.answer)]
    words = learn(texts, VOCABULARY)
    lessons = [Lesson(shapes_tokens, about_shapes, words), Lesson(emoji_tokens, about_emoji, words)]
    save(options.to, train(lessons, len(words), options.steps), words, HEADS, MADE.format(steps=options.steps))


if __name__ == "__main__":
    main()
