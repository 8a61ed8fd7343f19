"""What US-HASH is held against, on the same features and pairs.

* `CCA`: canonical correlation analysis with shrinkage (Hotelling, 1936; Hardoon et al., 2004), the float ceiling of
  what linear maps without labels reach, and what ITQ and LSH start from.
* `ITQ`: iterative quantisation of CCA's first 64 directions (Gong and Lazebnik, CVPR 2011).
* `LSH`: signs of 64 random projections of the same CCA space (Charikar, STOC 2002).
* `DeepHash`: deep cross-modal hashing (DCMH, Jiang and Li, CVPR 2017): a network per modality, the pairwise likelihood
  of shared labels, quantisation to common codes, balance. On fixed features, as US-HASH is: no encoder is fine-tuned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mmcache.keys.ushash import BITS, Codes, pack
from mmcache.learn.hash_train import Numbers, Paired

Floats = npt.NDArray[np.float32]
SHRINKAGE = 1.0
"""Of CCA's covariances: US-HASH's own, and the best of those tried for CCA too."""
DIRECTIONS = 128


class Coder(Protocol):
    """Something that gives codes."""

    def code(self, modality: str, features: Floats) -> Codes:
        """Features [n, width] → uint64 [n]."""


@dataclass(frozen=True)
class CCA:
    """One pair of modalities in a common space; directions weighted by their correlation."""

    means: Mapping[str, Floats]
    maps: Mapping[str, Floats]

    def embed(self, modality: str, features: Floats) -> Floats:
        """Features [n, width] → float32 [n, ≤ 128] of norm 1."""
        mapped = (features - self.means[modality]) @ self.maps[modality]
        return np.asarray(mapped / np.maximum(np.linalg.norm(mapped, axis=1, keepdims=True), 1e-12), np.float32)


def cca(pairs: Paired, one: str, other: str) -> CCA:
    """Learn from every pair of rows that shows one concept."""
    left, right = joined(pairs.concept[one], pairs.concept[other])
    rows = {one: pairs.rows[one][left].astype(np.float64), other: pairs.rows[other][right].astype(np.float64)}
    means = {modality: values.mean(axis=0) for modality, values in rows.items()}
    rows = {modality: values - means[modality] for modality, values in rows.items()}
    roots = {modality: _inverse_root(values.T @ values / len(values)) for modality, values in rows.items()}
    shared = roots[one].T @ (rows[one].T @ rows[other] / len(left)) @ roots[other]
    u, correlation, v = np.linalg.svd(shared, full_matrices=False)
    kept = slice(0, DIRECTIONS)
    maps = {one: roots[one] @ u[:, kept] * correlation[kept], other: roots[other] @ v.T[:, kept] * correlation[kept]}
    return CCA(
        {modality: mean.astype(np.float32) for modality, mean in means.items()},
        {modality: matrix.astype(np.float32) for modality, matrix in maps.items()},
    )


def joined(one: Numbers, other: Numbers) -> tuple[Numbers, Numbers]:
    """All pairs of places that hold the same number."""
    left, right = np.nonzero(one[:, None] == other[None, :])
    return left, right


def _inverse_root(covariance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors / np.sqrt(np.maximum(values, 0) + SHRINKAGE * max(values.mean(), 1e-12)))


@dataclass(frozen=True)
class Projected:
    """Signs of projections of a CCA space."""

    space: CCA
    rotation: Floats
    """float32 [directions used, 64]."""

    def code(self, modality: str, features: Floats) -> Codes:
        """See `Coder`."""
        return pack(self.space.embed(modality, features)[:, : len(self.rotation)] @ self.rotation > 0)


def lsh(space: CCA, seed: int) -> Projected:
    """64 random hyperplanes."""
    directions = next(iter(space.maps.values())).shape[1]
    drawn = np.random.default_rng(seed).standard_normal((directions, BITS))
    return Projected(space, drawn.astype(np.float32))


def itq(space: CCA, pairs: Paired, seed: int, rounds: int = 50) -> Projected:
    """The rotation of the first 64 directions that loses least by taking signs."""
    points = np.concatenate([space.embed(modality, pairs.rows[modality])[:, :BITS] for modality in space.maps])
    width = points.shape[1]
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))
    for _ in range(rounds):
        u, _, v = np.linalg.svd(points.T @ np.where(points @ rotation > 0, 1.0, -1.0))
        rotation = u @ v
    return Projected(space, np.pad(rotation, ((0, 0), (0, BITS - width))).astype(np.float32))


@dataclass(frozen=True)
class DeepHash:
    """Networks of two layers, one a modality."""

    layers: Mapping[str, tuple[Floats, ...]]
    """Mean, deviation, and weight and bias of both layers."""

    def code(self, modality: str, features: Floats) -> Codes:
        """See `Coder`."""
        mean, deviation, weight, bias, last, last_bias = self.layers[modality]
        hidden = np.maximum((features - mean) / deviation @ weight.T + bias, 0)
        return pack(hidden @ last.T + last_bias > 0)


def deep_hash(
    pairs: Paired, by: npt.NDArray[np.int64], *, steps: int, batch: int, seed: int, hidden: int = 512
) -> DeepHash:
    """Train DCMH on the rows that US-HASH has. `by` [concepts]: those of one number are alike."""
    import torch

    draw, random = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    scaled, nets, fixed = {}, {}, {}
    for modality, rows in pairs.rows.items():
        mean, deviation = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-6)
        fixed[modality] = (mean, deviation)
        scaled[modality] = torch.from_numpy((rows - mean) / deviation)
        nets[modality] = [_layer(torch, random, *shape) for shape in ((hidden, rows.shape[1]), (BITS, hidden))]
    optimiser = torch.optim.Adam([one for net in nets.values() for layer in net for one in layer], lr=1e-3)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = 1e-3 * 0.5 * (1 + np.cos(np.pi * step / steps))
        concepts = draw.permutation(len(pairs.category))[:batch]
        outputs, labels = {}, {}
        for modality, of in pairs.concept.items():
            place = np.full(len(pairs.category), -1)
            order = draw.permutation(len(of))
            place[of[order]] = order
            present = concepts[place[concepts] >= 0]
            x = scaled[modality][torch.from_numpy(place[present])]
            for number, (weight, bias) in enumerate(nets[modality]):
                x = x @ weight.T + bias
                x = torch.relu(x) if number == 0 else x
            outputs[modality], labels[modality] = x, (torch.from_numpy(by[present]), present)
        optimiser.zero_grad()
        _likelihood(torch, outputs, labels).backward()
        optimiser.step()
    return DeepHash({m: (*fixed[m], *(one.detach().numpy() for layer in nets[m] for one in layer)) for m in nets})


def _layer(torch: Any, random: Any, rows: int, columns: int) -> tuple[Any, Any]:
    weight = torch.randn(rows, columns, generator=random) * (2 / columns) ** 0.5
    return weight.requires_grad_(), torch.zeros(rows, requires_grad=True)


def _likelihood(torch: Any, outputs: Mapping[str, Any], labels: Mapping[str, Any]) -> Any:
    """DCMH's objective, averaged over pairs and rows: likelihood + quantisation + balance (γ = η = 1 by entry)."""
    total, names = torch.zeros(()), list(outputs)
    for i, one in enumerate(names):
        relaxed = torch.tanh(outputs[one])
        total = total + (torch.sign(outputs[one]).detach() - outputs[one]).square().mean() * 0.1
        total = total + relaxed.mean(0).square().mean() * 0.1
        for other in names[i + 1 :]:
            theta = outputs[one] @ outputs[other].T / 2
            same = (labels[one][0][:, None] == labels[other][0][None, :]).float()
            total = total + (torch.nn.functional.softplus(theta) - same * theta).mean()
    return total
