"""Pairs of pictures and of sounds put before the gates, counted by kind of pair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from mmcache.lab import data, edited_pictures, edited_sounds
from mmcache.lab.data.texts import QUESTIONS
from mmcache.lab.table import Progress
from mmcache.likeness import picture, sound
from mmcache.likeness.base import Nearness, WordDifference
from mmcache.likeness.words import analyse, differences


@dataclass
class Tally:
    """What a gate, and its peers, said of the pairs of one kind."""

    pairs: int = 0
    same: int = 0
    """`REENCODED`."""
    accepted: int = 0
    """That, or `TRIMMED`."""
    distances: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Of each published hash: the bits by which each pair differs."""

    def add(self, said: Nearness) -> None:
        """Count one pair."""
        self.pairs += 1
        self.same += said <= Nearness.REENCODED
        self.accepted += said <= Nearness.TRIMMED


Tallies = dict[str, Tally]


def interval(hits: int, of: int) -> tuple[float, float]:
    """Clopper and Pearson's (1934) 95 % interval of a share."""
    from scipy.stats import beta

    low = 0.0 if hits == 0 else float(beta.ppf(0.025, hits, of - hits + 1))
    high = 1.0 if hits == of else float(beta.ppf(0.975, hits + 1, of - hits))
    return low, high


def hashes() -> dict[str, Callable[[Image.Image], Any]]:
    """Published perceptual hashes of 64 bits, as the package imagehash has them; none where it is missing."""
    if find_spec("imagehash") is None:
        return {}
    import imagehash

    return {"phash": imagehash.phash, "dhash": imagehash.dhash}


@dataclass(frozen=True)
class Seen:
    """A picture with all that is made of it."""

    sketch: picture.PictureSketch
    hashes: dict[str, Any]

    @staticmethod
    def of(image: Image.Image) -> Seen:
        """Described once by everybody."""
        return Seen(picture.describe(image), {name: made(image) for name, made in hashes().items()})

    def judge(self, other: Seen, tally: Tally) -> None:
        """Put the pair before the gate and its peers."""
        tally.add(picture.compare(self.sketch, other.sketch))
        for name, mine in self.hashes.items():
            tally.distances[name].append(int(mine - other.hashes[name]))


def drawings(count: int, seed: int) -> list[Image.Image]:
    """`count` of easy-VQA's, drawn by `seed`."""
    picks = np.random.default_rng(seed).choice(len(data.shapes()), count, replace=False)
    return [Image.open(data.shapes()[int(i)]).convert("RGB") for i in picks]


def frames(count: int, seed: int) -> list[Image.Image]:
    """`count` video frames of three clips, animation at half its size, drawn by `seed`."""
    chosen: list[Image.Image] = []
    for clip, most in (("bunny", 132), ("bikes", 250), ("carphone", 120)):
        share = -(-count // 3)
        picks = set(np.random.default_rng((seed, most)).choice(most, share, replace=False).tolist())
        found = [frame for i, frame in enumerate(data.frames(clip)) if i in picks]
        chosen += [edited_pictures.scaled(one, 0.5) if clip == "bunny" else one for one in found]
    return chosen


def edits(kind: str, images: Sequence[Image.Image], seed: int, tallies: Tallies, progress: Progress) -> None:
    """Every edit and every change of `images`, by name, under `kind`/same, crop, changed or redrawn."""
    for i, image in enumerate(images):
        random, own = np.random.default_rng((seed, i)), Seen.of(image)
        for family, copies in (
            ("same", edited_pictures.reencoded(image)),
            ("crop", edited_pictures.cropped(image, random)),
            ("changed", edited_pictures.changed(image, random)),
        ):
            for name, copy in copies:
                own.judge(Seen.of(copy), tallies[f"{kind}/{family}/{name}"])
        for share in (16, 8):
            one, other = edited_pictures.digits(image, share, random)
            Seen.of(one).judge(Seen.of(other), tallies[f"{kind}/digit/3-for-8-1/{share}"])
        if kind == "drawings":
            for (a, one), (b, other) in combinations(edited_pictures.redrawn(image).items(), 2):
                Seen.of(one).judge(Seen.of(other), tallies[f"{kind}/redrawn/{a}-for-{b}"])
        progress(f"{kind}, seed {seed}", i + 1, len(images))


def neighbours(count: int, each: int, at_random: int, tallies: Tallies, progress: Progress) -> int:
    """Different drawings: each with its `each` nearest by vector, and `at_random` pairs.

    Returns how many accepted pairs have contrary answers to a question that both were asked.
    """
    found = [Seen.of(Image.open(path).convert("RGB")) for path in data.shapes()[:count]]
    vectors = np.stack([one.sketch.vector for one in found])
    near = np.argsort(-(vectors @ vectors.T), axis=1, kind="stable")[:, 1 : each + 1]
    pairs = {(min(i, int(j)), max(i, int(j))) for i, row in enumerate(near) for j in row}
    accepted, tally = [], tallies["drawings/other/nearest"]
    for done, (i, j) in enumerate(sorted(pairs)):
        before = tally.accepted
        found[i].judge(found[j], tally)
        if tally.accepted > before:
            accepted.append((i, j))
        if done % 500 == 0:
            progress("the nearest other drawings", done, len(pairs))
    random, tally = np.random.default_rng(0), tallies["drawings/other/random"]
    for i, j in random.integers(0, count, (at_random, 2)):
        if i != j:
            tally.add(picture.compare(found[i].sketch, found[j].sketch))
    answers: dict[int, dict[str, str]] = defaultdict(dict)
    for question, answer, number in msgspec.json.decode(QUESTIONS.read(), type=list[tuple[str, str, int]]):
        answers[number][question] = answer
    return sum(any(answers[j].get(q, a) != a for q, a in answers[i].items()) for i, j in accepted)


def video(gaps: Sequence[int], tallies: Tallies) -> None:
    """Frames of one clip, some frames apart, and of different clips."""
    clips = {
        clip: [picture.describe(frame) for frame in data.frames(clip, 0, 120, 2)]
        for clip in ("bunny", "bikes", "carphone")
    }
    for name, sketches in clips.items():
        for gap in gaps:
            for one, other in zip(sketches, sketches[gap // 2 :], strict=False):
                tallies[f"frames/apart/{name}-{gap}"].add(picture.compare(one, other))
    for a, b in combinations(clips, 2):
        for one, other in zip(clips[a], clips[b], strict=False):
            tallies["frames/other/clip"].add(picture.compare(one, other))


def sounds(hop: float, seed: int, tallies: Tallies, progress: Progress) -> None:
    """Clips of speech of 4 s: edits, changes, and other clips of the same recording."""
    clips = [clip for clip in data.speech(4.0, hop) if sound.describe(clip.samples, data.RATE).comparable]
    sketches = [sound.describe(clip.samples, data.RATE) for clip in clips]
    for i, (clip, own) in enumerate(zip(clips, sketches, strict=True)):
        random = np.random.default_rng((seed, i))
        same = [other for other in clips if other.recording == clip.recording and abs(other.start - clip.start) >= 4]
        source = same[int(random.integers(len(same)))].samples if same else clip.samples[::-1]
        for family, copies in (
            ("same", edited_sounds.reencoded(clip.samples, random)),
            ("crop", edited_sounds.trimmed(clip.samples)),
            ("changed", edited_sounds.changed(clip.samples, source, random)),
        ):
            for name, copy in copies:
                tallies[f"speech/{family}/{name}"].add(sound.compare(sound.describe(copy, data.RATE), own))
        progress(f"speech, seed {seed}", i + 1, len(clips))
    for (a, one), (b, other) in combinations(zip(clips, sketches, strict=True), 2):
        if a.recording != b.recording or abs(a.start - b.start) >= 0.5:
            tallies["speech/other/clip"].add(sound.compare(one, other))


def contrary_questions() -> tuple[int, int]:
    """(pairs of questions that had contrary answers for one picture, those of them without a difference in words)."""
    asked: dict[int, dict[str, str]] = defaultdict(dict)
    for question, answer, number in msgspec.json.decode(QUESTIONS.read(), type=list[tuple[str, str, int]]):
        asked[number][question] = answer
    pairs = {
        (a, b)
        for answers in asked.values()
        for (a, x), (b, y) in combinations(sorted(answers.items()), 2)
        if x != y
    }  # fmt: skip
    words = {question: analyse(question) for pair in pairs for question in pair}
    return len(pairs), sum(differences(words[a], words[b]) is WordDifference.NONE for a, b in pairs)
