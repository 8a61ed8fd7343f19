"""A small convolutional network with batch normalisation, trained here on cards, whose statistics can move.

Four layers of batch normalisation, the last on the 64 features that keys are made of (a "neck", Luo et al., 2019).
`features` gives them before and after that last layer: running statistics are what the naive key depends on.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcache.lab.drift_cards import Card, pixels
from mmcache.lab.table import Progress
from mmcache.model.errors import AssetError

Floats = npt.NDArray[np.float32]

WIDTH = 64
BATCH = 64


def _network(classes: int) -> Any:
    try:
        from torch import nn
    except ImportError as error:
        raise AssetError("the batch-norm network needs torch; run `python -m pip install 'mmcache[learn]'`") from error

    layers: list[Any] = []
    for before, after in ((3, 16), (16, 32), (32, WIDTH)):
        layers += [nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    layers += [nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)]
    return nn.Sequential(nn.Sequential(*layers), nn.Linear(WIDTH, classes))


@dataclass
class Tower:
    """The trained network; `body` ends in the neck."""

    network: Any
    classes: tuple[str, ...]

    @property
    def body(self) -> Any:
        """Pixels → 64 features, the neck last."""
        return self.network[0]

    def copy(self) -> Tower:
        """One whose statistics move on their own."""
        return Tower(copy.deepcopy(self.network), self.classes)

    def features(self, images: Floats) -> tuple[Floats, Floats]:
        """(before, after) the neck, float32 [n, 64] each, with the statistics as they are. In batches of 64."""
        import torch

        self.network.eval()
        before: list[Any] = []
        after: list[Any] = []
        with torch.no_grad():
            for start in range(0, len(images), BATCH):
                raw = self.body[:-1](torch.from_numpy(images[start : start + BATCH]))
                before.append(raw.numpy())
                after.append(self.body[-1](raw).numpy())
        return np.concatenate(before), np.concatenate(after)

    def answers(self, images: Floats) -> list[str]:
        """Shape and colour of each."""
        import torch

        _, after = self.features(images)
        with torch.no_grad():
            found = self.network[1](torch.from_numpy(after)).argmax(1)
        return [self.classes[int(one)] for one in found]

    def follow(self, images: Floats) -> None:
        """Let running statistics take one batch in, as in training mode (momentum 0.1); weights stay."""
        import torch

        self.network.train()
        with torch.no_grad():
            self.body(torch.from_numpy(images))
        self.network.eval()

    def shift(self, amount: float, seed: int) -> None:
        """Move every running mean by ± `amount` of its channel's running deviation, signs at random."""
        import torch

        rng = np.random.default_rng(seed)
        for layer in self.network.modules():
            if isinstance(layer, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
                signs = torch.from_numpy(rng.choice(np.array([-1.0, 1.0], np.float32), layer.num_features))
                layer.running_mean += amount * signs * layer.running_var.sqrt()


def train(known: list[Card], held_out: list[Card], seed: int, epochs: int, progress: Progress) -> tuple[Tower, float]:
    """The tower, and its share of held-out cards named right (shape and colour, of 24 classes). Raises `AssetError`."""
    classes = tuple(sorted({f"{card.shape} {card.colour}" for card in (*known, *held_out)}))
    _network(1)  # says so where torch is missing
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the same sums in the same order everywhere
    torch.manual_seed(seed)
    tower = Tower(_network(len(classes)), classes)
    images = torch.from_numpy(pixels([card.picture() for card in known]))
    wanted = torch.tensor([classes.index(f"{card.shape} {card.colour}") for card in known])
    optimiser = torch.optim.Adam(tower.network.parameters(), 3e-3)
    order = torch.Generator().manual_seed(seed)
    tower.network.train()
    for epoch in range(epochs):
        progress("training the batch-norm network", epoch, epochs)
        for rows in torch.randperm(len(known), generator=order).split(BATCH):
            if len(rows) < BATCH:
                continue
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(tower.network(images[rows]), wanted[rows]).backward()
            optimiser.step()
    told = tower.answers(pixels([card.picture() for card in held_out]))
    right = np.mean([one == f"{card.shape} {card.colour}" for one, card in zip(told, held_out, strict=True)])
    torch.set_num_threads(threads)
    return tower, float(right)
