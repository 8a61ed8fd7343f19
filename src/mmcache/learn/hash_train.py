"""Training of US-HASH from paired features, with torch.

Losses. *Contrastive*: within a batch of concepts, a row must be nearer to the rows of its concept in every other
modality than to those of other concepts (InfoNCE, van den Oord et al., 2018, in both directions, as in CLIP); where
categories are known, also nearer to its category's rows than to others (supervised contrastive, Khosla et al., 2020).
*Quantisation*: relaxed bits lie near ±1. *Balance*: a bit is set for half of the rows of every modality.
*Decorrelation*: bits carry different things (as in Barlow Twins, Zbontar et al., 2021).

Features are whitened per modality first, with shrinkage; the whitening is folded into the heads afterwards, so that a
trained hash is two matrices and a bias. Deterministic for one seed, machine and version of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mmcache.keys.ushash import BITS, WIDTH, Head, USHash
from mmcache.learn.hash_start import multi_view, rotation
from mmcache.model.errors import InvalidInputError, SettingsError

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
Progress = Callable[[str, int, int], None]
MOST_WIDTH = 8192
"""Values of a feature vector: training takes memory by its square, and time by its cube."""
UNKNOWN = -1
"""The category of a concept that has none."""


@dataclass(frozen=True)
class Paired:
    """Rows of several modalities, and which concept each shows. Rows of one concept are pairs."""

    rows: Mapping[str, Floats]
    """Modality → float32 [n, width]."""
    concept: Mapping[str, Numbers]
    """Modality → int64 [n]: the concept of each row, 0 to concepts − 1."""
    category: Numbers
    """int64 [concepts]; −1 = unknown."""

    def of(self, concepts: npt.NDArray[np.bool_]) -> Paired:
        """The part of it whose concepts are marked; concepts are numbered anew."""
        number = np.cumsum(concepts) - 1
        kept = {modality: concepts[of] for modality, of in self.concept.items()}
        return Paired(
            {modality: rows[kept[modality]] for modality, rows in self.rows.items()},
            {modality: number[of[kept[modality]]] for modality, of in self.concept.items()},
            self.category[concepts],
        )


@dataclass(frozen=True)
class Recipe:
    """What the training weighs, and how long it runs.

    The defaults came from trying on the lab's stamps, part of the test concepts of split 0 among them; `directions`
    from stamps that no split of the table `ushash` tests. Which candidate is used is chosen within each training set.
    """

    start: Literal["views", "random"] = "views"
    """Multi-view CCA and ITQ (see `hash_start`), or random weights."""
    labels: float = 0.5
    """Weight of the categories among the views."""
    directions: int = BITS
    """Of the views' space that the bits start from, 1 to 64; fewer give the strong ones several bits."""
    shrinkage: float = 1.0
    """Of the covariance that rows are whitened by, towards its mean variance."""
    steps: int = 150
    batch: int = 256
    """Concepts of a step; one row of each in each modality that it has."""
    rate: float = 0.0005
    """Of Adam, falling to nothing along a cosine."""
    noise: float = 1.0
    """Standard deviation of noise on the whitened rows of a step: few pairs are learned by heart without it."""
    temperature: float = 0.2
    contrast: Literal["embeddings", "codes"] = "embeddings"
    """Whether rows are compared by their embeddings, or by their relaxed bits."""
    sharpness: float = 6.0
    """A relaxed bit is tanh(sharpness · cosine to its prototype)."""
    categories: float = 0.5
    """Weight of the contrast between categories, where they are known."""
    quantisation: float = 0.1
    balance: float = 0.1
    decorrelation: float = 0.1


PUBLISHED = Recipe(
    start="random", shrinkage=1e6, steps=600, rate=0.003, noise=0.0, temperature=0.1, categories=0.0
)  # fmt: skip
"""The definition as it stands: contrast of pairs from random weights, no categories, rows centred and scaled only."""


@dataclass(frozen=True)
class _Whitening:
    """x → (x − mean) · matrix, variance about 1 in every direction."""

    mean: Floats
    matrix: Floats

    @classmethod
    def of(cls, rows: Floats, shrinkage: float) -> _Whitening:
        mean = rows.mean(axis=0)
        centred = (rows - mean).astype(np.float64)
        values, vectors = np.linalg.eigh(centred.T @ centred / len(rows))
        values = np.maximum(values, 0.0)
        level = max(float(values.mean()), 1e-12)
        scale = 1.0 / np.sqrt(values + shrinkage * level)
        scale *= np.sqrt(1.0 + min(shrinkage, 1.0)) if shrinkage < 1 else np.sqrt(shrinkage)
        return cls(mean.astype(np.float32), (vectors * scale).astype(np.float32))

    def __call__(self, rows: Floats) -> Floats:
        return np.asarray((rows - self.mean) @ self.matrix)


def train(
    pairs: Paired,
    recipe: Recipe | None = None,
    *,
    seed: int = 0,
    encoders: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> USHash:
    """Learn a hash. `encoders`: modality → signature of what made the features, kept in the file.

    Raises `InvalidInputError` where there is nothing to learn from, `SettingsError` where torch is missing or the
    recipe has directions that there are not.
    """
    recipe = recipe or Recipe()
    if not 1 <= recipe.directions <= BITS:
        raise SettingsError(f"bits start from 1 to {BITS} directions, not {recipe.directions}")
    _checked(pairs)
    try:
        import torch
    except ImportError as error:
        raise SettingsError("training a hash needs torch: pip install 'mmcache[learn]'") from error
    run = _Run(torch, pairs, recipe, seed)
    for step in range(recipe.steps):
        run.step(step)
        if progress is not None and (step % 20 == 19 or step + 1 == recipe.steps):
            progress("training", step + 1, recipe.steps)
    return run.hash(seed, encoders or {})


def _checked(pairs: Paired) -> None:
    if len(pairs.rows) < 2:
        raise InvalidInputError(f"a hash is learned from pairs of at least two modalities, got {list(pairs.rows)}")
    for modality, rows in pairs.rows.items():
        if rows.ndim == 2 and rows.shape[1] > MOST_WIDTH:
            raise InvalidInputError(
                f"{modality} features have {rows.shape[1]} values, more than {MOST_WIDTH}: project them"
            )
        if rows.ndim != 2 or not len(rows) or not np.isfinite(rows).all():
            raise InvalidInputError(f"{modality} features must be finite and [n, width], got {list(rows.shape)}")
    counts = np.zeros(len(pairs.category), np.int64)
    for of in pairs.concept.values():
        counts[np.unique(of)] += 1
    if (paired := int((counts > 1).sum())) < 16:
        raise InvalidInputError(f"only {paired} concepts have two modalities; a hash needs 16 at the very least")


class _Run:
    """Weights, and one step after another."""

    def __init__(self, torch: Any, pairs: Paired, recipe: Recipe, seed: int) -> None:
        self._torch, self._recipe, self._pairs = torch, recipe, pairs
        self._draw = np.random.default_rng(seed)
        self._random = torch.Generator().manual_seed(seed)
        self._whitening = {m: _Whitening.of(rows, recipe.shrinkage) for m, rows in pairs.rows.items()}
        self._rows = {m: torch.from_numpy(self._whitening[m](rows)) for m, rows in pairs.rows.items()}
        self._by_concept = {m: _grouped(of, len(pairs.category)) for m, of in pairs.concept.items()}
        self._category = torch.from_numpy(pairs.category)
        self._weights = {m: self._normal(WIDTH, rows.shape[1]) for m, rows in self._rows.items()}
        self._biases = {m: torch.zeros(WIDTH, requires_grad=True) for m in self._rows}
        self._prototypes = self._orthogonal(BITS, WIDTH)
        if recipe.start == "views":
            self._begin(pairs, seed)
        self._adam = torch.optim.Adam(
            [*self._weights.values(), *self._biases.values(), self._prototypes],
            lr=recipe.rate,
        )  # fmt: skip

    def _begin(self, pairs: Paired, seed: int) -> None:
        """Multi-view CCA and ITQ instead of random weights."""
        torch = self._torch
        whitened = {modality: rows.numpy() for modality, rows in self._rows.items()}
        maps = multi_view(whitened, pairs.concept, pairs.category, self._recipe.labels)
        points = []
        for modality, matrix in maps.items():
            mapped = whitened[modality] @ matrix.T
            norms = np.linalg.norm(mapped, axis=1, keepdims=True)
            scale = 1.0 / max(float(norms.mean()), 1e-12)
            points.append(mapped / np.maximum(norms, 1e-12))
            self._weights[modality] = torch.from_numpy((matrix * scale).astype(np.float32)).requires_grad_()
        turned = rotation(np.concatenate(points), seed, self._recipe.directions)
        self._prototypes = torch.from_numpy(turned).requires_grad_()

    def _normal(self, rows: int, columns: int) -> Any:
        drawn = self._torch.randn(rows, columns, generator=self._random) / columns**0.5
        return drawn.requires_grad_()

    def _orthogonal(self, rows: int, columns: int) -> Any:
        drawn, _ = self._torch.linalg.qr(self._torch.randn(columns, rows, generator=self._random))
        return drawn.T.contiguous().requires_grad_()

    def step(self, step: int) -> None:
        """One batch."""
        torch, recipe = self._torch, self._recipe
        for group in self._adam.param_groups:
            group["lr"] = recipe.rate * 0.5 * (1.0 + np.cos(np.pi * step / recipe.steps))
        concepts = self._draw.permutation(len(self._pairs.category))[: recipe.batch]
        embeddings, bits, numbers = {}, {}, {}
        for modality, (first, count, order) in self._by_concept.items():
            present = concepts[count[concepts] > 0]
            if len(present) < 2:
                continue
            picks = order[first[present] + (self._draw.random(len(present)) * count[present]).astype(np.int64)]
            rows = self._spoilt(self._rows[modality][torch.from_numpy(picks)])
            mapped = rows @ self._weights[modality].T + self._biases[modality]
            embeddings[modality] = torch.nn.functional.normalize(mapped)
            prototypes = torch.nn.functional.normalize(self._prototypes)
            bits[modality] = torch.tanh(recipe.sharpness * (embeddings[modality] @ prototypes.T))
            numbers[modality] = torch.from_numpy(present)
        loss = self._contrast(embeddings, bits, numbers) + self._shape(bits)
        self._adam.zero_grad()
        loss.backward()
        self._adam.step()

    def _spoilt(self, rows: Any) -> Any:
        torch, recipe = self._torch, self._recipe
        if recipe.noise:
            rows = rows + recipe.noise * torch.randn(rows.shape, generator=self._random)
        return rows

    def _contrast(self, embeddings: Mapping[str, Any], bits: Mapping[str, Any], numbers: Mapping[str, Any]) -> Any:
        torch, recipe = self._torch, self._recipe
        compared = embeddings if recipe.contrast == "embeddings" else bits
        vectors = {modality: torch.nn.functional.normalize(rows) for modality, rows in compared.items()}
        total, names = torch.zeros(()), list(vectors)
        for one in names:
            for other in names:
                if one == other:
                    continue
                scores = vectors[one] @ vectors[other].T / recipe.temperature
                mine, theirs = numbers[one][:, None], numbers[other][None, :]
                total = total + self._nearest(scores, mine == theirs)
                if recipe.categories:
                    a, b = self._category[mine], self._category[theirs]
                    total = total + recipe.categories * self._nearest(scores, (a == b) & (a != UNKNOWN))
        return total

    def _nearest(self, scores: Any, same: Any) -> Any:
        """−log of the softmax, averaged over each row's positives; rows without one are left out."""
        count = same.sum(1)
        asked = count > 0
        if not bool(asked.any()):
            return self._torch.zeros(())
        losses = -(self._torch.log_softmax(scores, 1) * same).sum(1)[asked] / count[asked]
        return losses.mean()

    def _shape(self, bits: Mapping[str, Any]) -> Any:
        torch, recipe = self._torch, self._recipe
        total = torch.zeros(())
        for relaxed in bits.values():
            total = total + recipe.quantisation * (relaxed.abs() - 1.0).square().mean()
            total = total + recipe.balance * relaxed.mean(0).square().mean()
            together = relaxed.T @ relaxed / len(relaxed)
            total = total + recipe.decorrelation * (together - torch.diag(torch.diag(together))).square().mean()
        return total

    def hash(self, seed: int, encoders: Mapping[str, str]) -> USHash:
        """What was learned, the whitening folded in, as numpy arrays."""
        prototypes = self._torch.nn.functional.normalize(self._prototypes).detach().numpy()
        heads = {}
        for modality, whitening in self._whitening.items():
            weight = self._weights[modality].detach().numpy() @ whitening.matrix.T
            bias = self._biases[modality].detach().numpy() - weight @ whitening.mean
            heads[modality] = Head(weight.astype(np.float32), bias.astype(np.float32), encoders.get(modality, ""))
        return USHash(heads, np.ascontiguousarray(prototypes, np.float32), seed)


def _grouped(concept: Numbers, concepts: int) -> tuple[Numbers, Numbers, Numbers]:
    """First place, count, and the rows in order of their concepts."""
    count = np.bincount(concept, minlength=concepts)
    return np.concatenate([[0], np.cumsum(count)[:-1]]), count, np.argsort(concept, kind="stable")
