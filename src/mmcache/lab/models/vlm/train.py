"""Train the model: `python -m mmcache.lab.models.vlm.train`. torch is imported here and nowhere else in the room.

Fixed seed; the frozen tokens are computed once (see `tokens.py`). Adam with decoupled decay (Loshchilov & Hutter,
2019), one cycle of the rate. On another processor the last bits, and so the weights, come out a little different.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcache.lab.data.picture_questions import asked, facts
from mmcache.lab.models.vlm import tokens
from mmcache.lab.models.vlm.decoder import PATCHES, shapes
from mmcache.lab.models.vlm.examples import Example, of_concept, of_shapes
from mmcache.lab.models.vlm.weights import FILE, save
from mmcache.lab.models.vlm.words import Words, learn

SEED = 0
WIDTH, LAYERS, HEADS, LONGEST, VOCABULARY = 96, 2, 4, 40, 800
BATCH, RATE, DROPOUT, STEPS = 16, 2e-3, 0.05, 900
TURNS = (0, 0, 1)
"""Which lesson a step is of: two of shapes, one of emoji."""
MADE = (
    "DINOv2 ViT-S/14 tokens (Apache-2.0, frozen) -> decoder trained on easy-vqa 1.0 (MIT) and on emoji drawn by "
    "Noto (Apache-2.0) and Fluent (MIT), named by emojibase (MIT); seed {seed}, {steps} steps of {batch} pictures"
)


class Lesson:
    """Pictures' tokens, float16 [n, 257, 384], and what is asked about each."""

    def __init__(
        self, tokens: npt.NDArray[np.float16], examples: Sequence[Sequence[Example]], words: Words, per_picture: int
    ) -> None:
        self.tokens = tokens
        self.per_picture = per_picture
        self.examples = [[one.pieces(words) for one in of] for of in examples]
        self.usable = np.flatnonzero([bool(of) for of in examples])
        # Most questions have an answer that is right most of the time. Drawn as they come, they teach that alone for
        # long; so the rarer answers to a question are drawn more often.
        counts = Counter((one.question, one.answer) for of in examples for one in of)
        weights = [np.array([counts[one.question, one.answer] ** -0.5 for one in of]) for of in examples]
        self.shares = [of / of.sum() if of.size else of for of in weights]

    def draw(self, random: np.random.Generator) -> tuple[Any, Any, Any]:
        """tokens [b, 256, 384], pieces [b, s, l], and where the loss counts [b, s, l - 1]."""
        import torch

        chosen = random.choice(self.usable, BATCH, replace=False)
        drawn = [
            [
                self.examples[one][i]
                for i in random.choice(len(self.examples[one]), self.per_picture, p=self.shares[one])
            ]
            for one in chosen
        ]
        longest = max(len(pieces) for of in drawn for pieces, _ in of)
        ids = np.zeros((BATCH, self.per_picture, longest), np.int64)
        counts = np.zeros((BATCH, self.per_picture, longest - 1), np.float32)
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
    same = ids[..., :, None] == ids[..., None, :]
    again = same.tril(-1).any(-1, keepdim=True)
    x = drop(w["embedding"][ids] + w["positions"][:length] + again * w["again"])
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
            spread = 0.02 if name in ("embedding", "positions", "again") else shape[0] ** -0.5
            first = torch.randn(shape) * spread
        found[name] = first.requires_grad_()
    return found


def train(
    lessons: Sequence[Lesson], turns: Sequence[int], pieces: int, steps: int
) -> dict[str, npt.NDArray[np.float16]]:
    """The weights after `steps` steps, lesson by lesson in `turns`, again and again."""
    import torch
    import torch.nn.functional as f

    torch.set_num_threads(1)  # with more, the order of sums depends on how many cores there are
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
    for step, which in enumerate(islice(cycle(turns), steps)):
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


def main() -> None:
    """Compute the tokens, train, write the weights."""
    parser = argparse.ArgumentParser(description="Train the small vision-language model.")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--to", type=Path, default=FILE, help="the weights file to write")
    options = parser.parse_args()

    def show(what: str, done: int, total: int) -> None:
        if done % 400 == 0:
            print(f"{what}: {done} of {total}", flush=True)

    drawn, of_drawn = tokens.of_shapes_taught(show), of_shapes(asked("train"), facts("train"))
    concepts, of_emoji = tokens.of_emoji(show)["taught"]
    about = [of_drawn[: len(drawn)], [of_concept(one) for one in concepts]]
    words = learn(
        [text for of in (*about[0], *about[1]) for one in of for text in (one.question, one.answer)], VOCABULARY
    )
    lessons = [Lesson(drawn, about[0], words, 10), Lesson(of_emoji, about[1], words, 3)]
    made = MADE.format(seed=SEED, steps=options.steps, batch=BATCH)
    save(options.to, train(lessons, TURNS, len(words), options.steps), words, HEADS, made)


if __name__ == "__main__":
    main()
