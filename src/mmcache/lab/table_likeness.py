"""Table `likeness`: what the gates let pass: of pictures, sounds and questions that are the same, and that are not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from PIL import Image

from mmcache.lab import data, edited_pictures, edited_sounds, likeness_runs
from mmcache.lab.likeness_runs import Tallies, Tally, interval
from mmcache.lab.measure import interleave
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.likeness import picture, sound, words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACCEPTED = {"same": 95.0, "crop": 80.0}
"""Per cent of copies that should pass: re-encoded, cropped."""
MOST_WRONG = 0.1
"""Per cent of other pictures that may pass, at most."""
USUAL = 10
"""Bits of 64 that may differ in common use of pHash and dHash."""


class LikenessTable(Table):
    """Accept rates by kind of edit, false accepts by kind of other picture, beside pHash and dHash."""

    name: ClassVar[str] = "likeness"
    title: ClassVar[str] = "Gates: which edits of a picture or a sound pass, and which other ones do"
    remark: ClassVar[str] = (
        "A gate is one of several; what it lets pass is served only where calibration has learned that it may. "
        "The targets are ours: 95 % of re-encoded and 80 % of cropped copies, and at most 0.1 % of other drawings"
        " (upper end of the interval). Missed: JPEG 30 of a 64 × 64 drawing, whose blocks are an eighth of the "
        "picture and their errors as large as a small shape: to let them pass would let other shapes pass. Missed"
        " by far: the four nearest other drawings of each. Nearly all that pass have the same shape in the same "
        "colour within 5 % of the same place, on nearly the same paper: no gate of looks can tell them from a "
        "slight move, and `contrary` counts those that were asked one question and answered it differently: one "
        "pair. A circle passes for a rectangle where both are pale on pale. What the gate cannot tell: one "
        "character a sixteenth of the picture's height (`digit`), some frames a fifteenth of a second apart "
        "(`apart`), a change that falls into a pause (`muted`). pHash at 0 bits still has more false accepts than"
        " we: many changed pictures have the very same hash. The tolerances were set on other random picks of the"
        " same files, so some pictures may be in both."
    )

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Real pictures and speech; `seeds` choose them and their edits. Raises `AssetError`."""
        tallies: Tallies = defaultdict(Tally)
        for seed in seeds[:1] if quick else seeds:
            few, some = (8, 3) if quick else (60, 18)
            likeness_runs.edits("drawings", likeness_runs.drawings(few, seed), seed, tallies, progress)
            likeness_runs.edits("frames", likeness_runs.frames(some, seed), seed, tallies, progress)
            likeness_runs.sounds(4.0 if quick else 2.0, seed, tallies, progress)
        size = (200, 4, 2000) if quick else (3000, 4, 100_000)
        contrary = likeness_runs.neighbours(*size, tallies, progress)
        likeness_runs.video((2, 10, 50), tallies)
        rows = [row for name, tally in tallies.items() for row in rows_of(name, tally)]
        rows.append(
            Row.of(
                "drawings/other/contrary", "accepted pairs of drawings that have contrary answers", "pairs", "lower",
                contrary, target=0,
            )
        )  # fmt: skip
        pairs, missed = likeness_runs.contrary_questions()
        rows.append(
            Row.of(
                "words/contrary", f"of {pairs} pairs of questions with contrary answers, no difference seen", "pairs",
                "lower", missed, target=0,
            )
        )  # fmt: skip
        rows += [*_peers(tallies), *_times(quick)]
        return Result(
            self.name,
            quick,
            tuple(seeds),
            (
                "easy-VQA drawings (64 × 64), frames of three clips (176 × 144 to 640 × 360), two recordings of speech",
                "codecs: Pillow's JPEG and WebP; Opus, MP3 by FFmpeg, written and read back",
                "pHash and dHash of imagehash, 64 bits, on the same pairs",
                "spread of a share: its 95 % interval (Clopper & Pearson); of a time: 10th to 90th percentile",
            ),
            (
                "edits and changes are made by us, places drawn by fixed seeds; nobody sent these pictures around",
                "redrawn: the same box, colour and paper as a drawing of easy-VQA, another shape",
                "spliced speech: a louder stretch of the same recording in the place of another, without smoothing",
            ),
            tuple(rows),
        )

    def plot(self, result: Result, figure: Figure) -> None:
        """Accepted shares, a bar a kind of pair; false accepts below."""
        upper, lower = figure.subplots(2, 1)
        for axes, families, colour in ((upper, ("same", "crop"), "tab:green"), (lower, _WRONG, "tab:red")):
            kept = [row for row in result.rows if row.unit == "%" and row.id.split("/")[1] in families]
            kept = [row for row in kept if row.id.split("/")[0] in ("drawings", "frames", "speech")]
            axes.bar(range(len(kept)), [row.ours or 0.0 for row in kept], color=colour)
            axes.set_xticks(range(len(kept)), [row.id for row in kept], rotation=90, fontsize=5)
            axes.set_ylabel("accepted, %")
        upper.set_title("copies of the same")
        lower.set_title("others")


_WRONG = ("changed", "redrawn", "other", "digit", "apart")
_WORDS = {
    "same": "re-encoded copies accepted as such",
    "crop": "cropped copies accepted",
    "changed": "changed ones accepted",
    "redrawn": "another shape in the same place, accepted",
    "digit": "one digit changed, accepted",
    "other": "other ones accepted",
    "apart": "frames some frames apart, accepted",
}


def rows_of(name: str, tally: Tally) -> Iterator[Row]:
    """One kind of pairs: how many passed, and of other pictures the upper end of what is likely."""
    kind, family = name.split("/")[:2]
    hits = tally.same if family == "same" else tally.accepted
    low, high = interval(hits, tally.pairs)
    target = ACCEPTED.get(family)
    if family in ("changed", "redrawn") or name == "drawings/other/nearest":
        target = None
    yield Row(
        name, f"{kind}: {_WORDS[family]}, of {tally.pairs}", "%", "higher" if family in ACCEPTED else "lower",
        100 * hits / tally.pairs, (100 * low, 100 * high), target,
    )  # fmt: skip
    if family == "other":
        yield Row(
            f"{name}/upper", f"{kind}: upper end of the 95 % interval of {name}", "%", "lower", 100 * high, None,
            MOST_WRONG if kind == "drawings" else None,
        )  # fmt: skip


def _peers(tallies: Tallies) -> Iterator[Row]:
    """All copies and all others put together, at our false accepts and as commonly used."""
    if not likeness_runs.hashes():
        return
    groups = {
        "same": [t for name, t in tallies.items() if name.split("/")[1] == "same" and t.distances],
        "crop": [t for name, t in tallies.items() if name.split("/")[1] == "crop" and t.distances],
        "wrong": [t for name, t in tallies.items() if name.split("/")[1] in _WRONG and t.distances],
    }
    ours = {group: 100 * sum(t.accepted for t in all_) / sum(t.pairs for t in all_) for group, all_ in groups.items()}
    yield from _trio("ours", "ours", ours)
    for peer in likeness_runs.hashes():
        bits = {group: np.concatenate([t.distances[peer] for t in all_]) for group, all_ in groups.items()}
        shares = {k: {group: 100 * float((b <= k).mean()) for group, b in bits.items()} for k in range(65)}
        fair = max((k for k in shares if shares[k]["wrong"] <= ours["wrong"]), default=0)
        yield from _trio(f"{peer}-fair", f"{peer} at ≤ {fair} bits (no more false accepts, or 0)", shares[fair])
        yield from _trio(f"{peer}-usual", f"{peer} at ≤ {USUAL} bits, as is usual", shares[USUAL])


def _trio(name: str, words: str, shares: dict[str, float]) -> Iterator[Row]:
    yield Row.of(f"all/{name}/same", f"{words}: re-encoded copies accepted", "%", "higher", shares["same"])
    yield Row.of(f"all/{name}/crop", f"{words}: cropped copies accepted", "%", "higher", shares["crop"])
    yield Row.of(f"all/{name}/wrong", f"{words}: changed and other ones accepted", "%", "lower", shares["wrong"])


def _times(quick: bool) -> Iterator[Row]:
    portrait = Image.open(data.portrait()).convert("RGB")
    large, huge = portrait.resize((640, 480)), portrait.resize((4000, 3000))
    one = picture.describe(large)
    copy = picture.describe(edited_pictures.saved(large, "JPEG", quality=60))
    crop, other = picture.describe(large.crop((20, 0, 640, 480))), picture.describe(large.transpose(Image.Transpose(0)))
    clip = data.speech(4.0, 2.0)[5].samples
    heard, again = (
        sound.describe(s, data.RATE) for s in (clip, edited_sounds.saved(clip, "libopus", "ogg", 16000, 48000))
    )
    asked, stored = "does the image not contain a green shape?", "is there a red shape in the image?"
    read = words.analyse(asked), words.analyse(stored)
    timings = interleave(
        {
            "describe-640x480": lambda: picture.describe(large),
            "describe-12MP": lambda: picture.describe(huge),
            "compare-same": lambda: picture.compare(copy, one),
            "compare-crop": lambda: picture.compare(crop, one),
            "compare-unlike": lambda: picture.compare(other, one),
            "describe-speech-4s": lambda: sound.describe(clip, data.RATE),
            "compare-speech-4s": lambda: sound.compare(again, heard),
            "analyse-question": lambda: words.analyse(asked),
            "differences": lambda: words.differences(*read),
        },
        rounds=7 if quick else 25,
    )
    for name, timing in timings.items():
        yield Row.of(f"time/{name}", name.replace("-", " ", 1), "µs", "lower", timing.scaled(1e6))
