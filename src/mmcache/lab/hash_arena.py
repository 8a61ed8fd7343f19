"""The contest of the table `ushash`: every hash trained on the same concepts, asked for the same ones that none saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mmcache.keys.ushash import BITS
from mmcache.lab.hash_rivals import Coder, cca, deep_hash, itq, lsh
from mmcache.lab.pairs import Pairs
from mmcache.lab.table import Progress, silent
from mmcache.learn.hash_scores import average_precision, hamming
from mmcache.learn.hash_train import PUBLISHED, Numbers, Paired, Recipe, train

Floats = npt.NDArray[np.float32]
TESTED = 0.25
"""Share of the concepts that is kept out of training."""
DIRECTIONS = {"T→I": ("text", "image"), "I→T": ("image", "text"), "A→T": ("audio", "text")}
RELEVANCE = ("category", "instance")
RIVALS = ("deep-hash-kinds", "deep-hash-pairs", "itq", "lsh")
DEEP_STEPS = 600
"""Of the deep hash: more than US-HASH takes, as it starts from nothing; fewer make it worse."""


@dataclass(frozen=True)
class Pool:
    """All data sets as one: concepts numbered through, categories never shared between sets."""

    pairs: Paired
    root: npt.NDArray[np.str_]
    """What concept i is split by."""
    of_set: npt.NDArray[np.str_]
    """The data set of concept i."""
    source: Mapping[str, npt.NDArray[np.str_]]
    """Modality → language or style of each row."""

    def split(self, seed: int) -> npt.NDArray[np.bool_]:
        """bool [concepts]: those kept out, by root, so that no name is on both sides."""
        roots = np.unique(self.root)
        chosen = np.random.default_rng(seed).permutation(len(roots))[: round(TESTED * len(roots))]
        return np.isin(self.root, roots[chosen])

    def training(self, seed: int) -> Paired:
        """What the split leaves to learn from."""
        return self.pairs.of(~self.split(seed))


def pool(sets: Sequence[Pairs]) -> Pool:
    """Join data sets."""
    kinds: dict[tuple[str, str], int] = {}
    category = [kinds.setdefault((one.name, kind), len(kinds)) for one in sets for kind in one.category]
    starts = np.cumsum([0, *(len(one.category) for one in sets)])
    modalities = sorted({modality for one in sets for modality in one.modalities})
    placed = list(zip(sets, starts[:-1], strict=True))
    having = {m: [(one.modalities[m], start) for one, start in placed if m in one.modalities] for m in modalities}
    return Pool(
        Paired(
            {m: np.concatenate([features.rows for features, _ in parts]) for m, parts in having.items()},
            {m: np.concatenate([features.concept + start for features, start in parts]) for m, parts in having.items()},
            np.array(category, np.int64),
        ),
        np.array([root for one in sets for root in one.root]),
        np.array([one.name for one in sets for _ in one.category]),
        {m: np.array([word for features, _ in parts for word in features.source]) for m, parts in having.items()},
    )


class Asked(NamedTuple):
    """Rows that ask, and the rows of the gallery that they ask."""

    set: str
    direction: str
    ask: Numbers
    gallery: Numbers


def questions(pool: Pool, test: npt.NDArray[np.bool_]) -> Iterator[Asked]:
    """Each data set by itself: its categories mean nothing in another. Captions are English; those asked for by a
    spoken caption are in its language, one gallery a language."""
    for name in dict.fromkeys(pool.of_set.tolist()):
        wanted = test & (pool.of_set == name)
        places = {m: np.flatnonzero(wanted[of]) for m, of in pool.pairs.concept.items()}
        english = places["text"][pool.source["text"][places["text"]] == "en"]
        yield Asked(name, "T→I", english, places["image"])
        yield Asked(name, "I→T", places["image"], english)
        sounds = places.get("audio", np.empty(0, np.int64))
        for language in sorted(set(pool.source["audio"][sounds].tolist())) if len(sounds) else ():
            spoken = sounds[pool.source["audio"][sounds] == language]
            yield Asked(name, "A→T", spoken, places["text"][pool.source["text"][places["text"]] == language])


Distance = Callable[[str, Floats, str, Floats], Floats]
"""(modality, features [q, …], modality, features [g, …]) → float32 [q, g]."""


def by_code(coder: Coder) -> Distance:
    """Hamming distances of codes."""
    return lambda one, asked, other, known: hamming(coder.code(one, asked), coder.code(other, known))


def by_cosine(embed: Callable[[str, Floats], Floats]) -> Distance:
    """Negative cosines of embeddings."""
    return lambda one, asked, other, known: -(embed(one, asked) @ embed(other, known).T)


class Answer(NamedTuple):
    """The average precision of one query."""

    method: str
    set: str
    direction: str
    relevance: str
    seed: int
    concept: int
    precision: float


def contest(
    pool: Pool, seed: int, recipe: Recipe, progress: Progress = silent, deep_steps: int = DEEP_STEPS
) -> list[Answer]:
    """Train all on one split, US-HASH by `recipe`, and ask all."""
    test, training = pool.split(seed), pool.training(seed)
    answers: list[Answer] = []
    makers = _makers(training, recipe, seed, deep_steps)
    for done, (method, directions, make) in enumerate(makers, 1):
        distances = make()
        for asked in questions(pool, test):
            if asked.direction in directions:
                for name, distance in distances.items():
                    answers += _ask(pool, asked, method + name, distance, seed)
        progress(f"hashes, seed {seed}", done, len(makers))
    return answers


Maker = tuple[str, Sequence[str], Callable[[], Mapping[str, Distance]]]


def _makers(training: Paired, recipe: Recipe, seed: int, deep_steps: int) -> list[Maker]:
    batch, everything = recipe.batch, tuple(DIRECTIONS)
    plain = replace(recipe, steps=0, labels=0.0, directions=BITS)

    def hashed(pairs: Paired, with_recipe: Recipe) -> Mapping[str, Distance]:
        learned = train(pairs, with_recipe, seed=seed)
        return {"": by_code(learned), "/float": by_cosine(learned.embed)}

    def deep(alike: Numbers) -> Mapping[str, Distance]:
        return {"": by_code(deep_hash(training, alike, steps=deep_steps, batch=batch, seed=seed))}

    def canonical(one: str, other: str) -> Mapping[str, Distance]:
        space = cca(training, one, other)
        return {
            "cca/float": by_cosine(space.embed),
            "itq": by_code(itq(space, training, seed)),
            "lsh": by_code(lsh(space, seed)),
        }

    found: list[Maker] = [
        ("ours", everything, lambda: hashed(training, recipe)),
        ("definition", everything, lambda: hashed(training, PUBLISHED)),
        ("itq-unified", everything, lambda: {"": hashed(training, plain)[""]}),
        ("shuffled", everything, lambda: {"": hashed(shuffled(training, seed), recipe)[""]}),
        ("deep-hash-kinds", everything, lambda: deep(training.category)),
        ("deep-hash-pairs", everything, lambda: deep(np.arange(len(training.category)))),
        ("", ("T→I", "I→T"), lambda: canonical("image", "text")),
    ]
    if "audio" in training.rows:
        found.append(("", ("A→T",), lambda: canonical("audio", "text")))
    return found


def shuffled(pairs: Paired, seed: int) -> Paired:
    """The control: each modality's rows belong to other concepts, at random, so there is nothing to learn."""
    draw = np.random.default_rng(seed)
    concept = {m: draw.permutation(len(pairs.category))[of] for m, of in pairs.concept.items()}
    return Paired(pairs.rows, concept, pairs.category)


def _ask(pool: Pool, asked: Asked, method: str, distance: Distance, seed: int) -> Iterator[Answer]:
    one, other = DIRECTIONS[asked.direction]
    rows, of = pool.pairs.rows, pool.pairs.concept
    if not len(asked.ask) or not len(asked.gallery):
        return
    found = distance(one, rows[one][asked.ask], other, rows[other][asked.gallery])
    mine, theirs = of[one][asked.ask], of[other][asked.gallery]
    kinds = pool.pairs.category[mine][:, None] == pool.pairs.category[theirs][None, :]
    for relevance, relevant in (("category", kinds), ("instance", mine[:, None] == theirs[None, :])):
        concepts = mine[relevant.any(axis=1)]
        for concept, precision in zip(concepts.tolist(), average_precision(found, relevant, seed), strict=True):
            yield Answer(method, asked.set, asked.direction, relevance, seed, concept, float(precision))
