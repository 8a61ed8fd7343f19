"""The runs of table `vlm`: one stream through every variant, request by request in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mmcache import Cache, Signature
from mmcache.lab.captioner.bleu import bleu4, words
from mmcache.lab.captioner.gallery import UNSEEN
from mmcache.lab.captioner.model import AT_REST, QUESTIONS
from mmcache.lab.captioner.worker import Worker
from mmcache.lab.data.emoji import emoji
from mmcache.lab.data.picture_questions import asked
from mmcache.lab.data.pictures import shapes
from mmcache.lab.models.vlm import VisionLanguage
from mmcache.lab.models.vlm.tokens import opened
from mmcache.lab.table import Progress

ZIPF_EXPONENT = 0.9


def zipf(pool: int, count: int, random: np.random.Generator) -> list[int]:
    """`count` draws of 0…pool-1 by Zipf's law; which is popular is drawn, too."""
    weights = np.arange(1, pool + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    ranks = random.permutation(pool)
    return [int(ranks[draw]) for draw in random.choice(pool, count, p=weights / weights.sum())]


@dataclass
class Run:
    """What one variant did, over all seeds."""

    ms: list[list[float]] = field(default_factory=list)
    """Latencies, a list a seed."""
    said: list[str] = field(default_factory=list)
    peak: int = 0
    encoded: int = 0
    read: int = 0

    def quantile(self, share: float) -> list[float]:
        """One figure a seed."""
        return [float(np.quantile(ms, share)) for ms in self.ms]


@dataclass
class Captions:
    """The captioner's runs, and what their sentences are compared with."""

    runs: dict[str, Run]
    meant: list[str]
    """Reference captions: Unicode's name and tags."""
    named: list[set[str]]
    """Words of the name."""
    apart: dict[str, float]
    """Variant → largest difference of a logit, from stored keys and values and computed ones."""
    repeats: float
    """Share of requests about a picture that was asked about before."""

    def bleu(self, variant: str, against: str = "") -> float:
        """Of a variant's sentences, against references or another variant's."""
        return bleu4(self.runs[variant].said, self.runs[against].said if against else self.meant)

    def names(self, variant: str, shift: int = 0) -> float:
        """Per cent of sentences with all words of the picture's name, or (control) of another picture's."""
        said = self.runs[variant].said
        right = [self.named[(i + shift) % len(said)] <= set(words(one)) for i, one in enumerate(said)]
        return 100 * float(np.mean(right))


def captions(
    variants: Sequence[str], folder: Path, requests: int, pool: int, seeds: Sequence[int], progress: Progress
) -> Captions:
    """Draw the pictures, start a process a variant, and let them take turns. Raises `AssetError`."""
    concepts = emoji()
    some = [concepts[int(i)] for i in np.random.default_rng(0).permutation(len(concepts))[:pool]]
    files = []
    for number, concept in enumerate(some):
        files.append(folder / f"{number}.png")
        concept.pictures[UNSEEN]().save(files[-1])
    found = Captions({variant: Run() for variant in variants}, [], [], {}, 0.0)
    workers = [Worker(variant, folder) for variant in variants]
    try:
        for worker in workers:
            progress("models are loading", 0, len(workers))
            worker.ready()
        for place, seed in enumerate(seeds):
            random = np.random.default_rng(seed)
            stream = list(
                zip(zipf(pool, requests, random), random.integers(len(QUESTIONS), size=requests), strict=True)
            )
            for worker in workers:
                worker.ask(do="reset")
                found.runs[worker.variant].ms.append([])
            for done, (picture, question) in enumerate(stream):
                progress("pictures into sentences", place * requests + done, len(seeds) * requests)
                turn = done % len(workers)
                for worker in (*workers[turn:], *workers[:turn]):
                    got = worker.ask(do="answer", picture=str(files[picture]), question=QUESTIONS[question])
                    found.runs[worker.variant].ms[-1].append(got["ms"])
                    found.runs[worker.variant].said.append(got["said"])
                found.meant.append(some[picture].texts["en"])
                found.named.append(set(words(some[picture].texts["en"].split(":")[0])))
            found.repeats += (1 - len({picture for picture, _ in stream}) / requests) / len(seeds)
            for worker in workers:
                told, run = worker.ask(do="tell"), found.runs[worker.variant]
                run.peak, run.encoded, run.read = told["peak"], run.encoded + told["encoded"], run.read + told["read"]
        for worker in workers:
            if worker.variant in AT_REST:
                found.apart[worker.variant] = max(
                    worker.ask(do="exact", picture=str(file), question=QUESTIONS[0])["apart"] for file in files[:3]
                )
    finally:
        for worker in workers:
            worker.__exit__()
    return found


# The repository's own model --------------------------------------------------------------------------------------


@dataclass
class Answers:
    """easy-VQA through the repository's own model."""

    runs: dict[str, Run]
    right: dict[str, list[float]]
    """Per cent a seed."""


def answers(folder: Path, requests: int, pool: int, seeds: Sequence[int], progress: Progress) -> Answers:
    """Pictures by Zipf's law, each with one of its own questions. Raises `AssetError`."""
    model = VisionLanguage()
    model.load()
    files = shapes("test")
    questions: dict[int, list[Any]] = {}
    for one in asked("test"):
        questions.setdefault(one.picture, []).append(one)
    pictures = sorted(questions)[:pool]
    found = Answers({}, {})
    for place, seed in enumerate(seeds):
        random = np.random.default_rng(seed)
        stream = [
            questions[pictures[draw]][int(random.integers(len(questions[pictures[draw]])))]
            for draw in zipf(pool, requests, random)
        ]
        caches = [Cache(folder / f"vqa{seed}{number}", memory="512MiB", codec=c) for number, c in enumerate(_CODECS)]
        try:
            variants = _variants(model, *caches)
            for name in variants:
                found.runs.setdefault(name, Run()).ms.append([])
                found.right.setdefault(name, []).append(0.0)
            for done, one in enumerate(stream):
                progress("questions about shapes", place * requests + done, len(seeds) * requests)
                names = list(variants)
                for name in (*names[done % len(names) :], *names[: done % len(names)]):
                    picture = files[one.picture]
                    started = time.perf_counter()
                    said = variants[name](picture, one.question)
                    found.runs[name].ms[-1].append(1000 * (time.perf_counter() - started))
                    found.runs[name].said.append(said)
                    found.right[name][-1] += 100 * (said == one.answer) / requests
        finally:
            for cache in caches:
                cache.close()
    return found


_CODECS = ("raw", "int4:group=64", "raw")


def _variants(
    model: VisionLanguage, features: Cache, fewer: Cache, whole: Cache
) -> Mapping[str, Callable[[Path, str], str]]:
    def bare(picture: Path, question: str) -> str:
        return model.answer(opened(picture), question)

    signature: Signature = model.encoder.signature
    encoded = features.wrap(model.encoder.encode, modality="image", signature=signature)
    in_int4 = fewer.wrap(model.encoder.encode, modality="image", signature=signature)
    answered = whole.wrap(lambda picture, question: model.answer(picture, question), modality="image",
                          signature=model.signature)  # fmt: skip
    return {
        "none": bare,
        "ours": lambda picture, question: model.answer(encoded(picture), question),
        "ours+int4": lambda picture, question: model.answer(in_int4(picture), question),
        "ours+answers": lambda picture, question: str(answered(picture, question)),
    }
