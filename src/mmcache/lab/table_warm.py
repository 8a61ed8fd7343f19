"""Table `warm`: how well a video's frames, print and speech are placed in time, and what warming saves (D6).

Talks are made with known times (`lab.talks`): plain ones, ones whose slides fade, of variable frame rate, rotated,
mute, cut short, scratched. Each is warmed by the product's own pipeline with real models. Then an application asks for
what there is at random moments.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mmcache.cache import Cache
from mmcache.lab import warm_runs
from mmcache.lab.film import cut_short, scratched
from mmcache.lab.table import Progress, Result, Row, Table, percentile
from mmcache.lab.talks import Kind, Talk, talk
from mmcache.lab.warm_kill import Calls, kill
from mmcache.lab.warm_runs import Models, Stream, Worth
from mmcache.lab.warm_score import Score
from mmcache.model.errors import InvalidInputError
from mmcache.prefetch.media import Uses, Warmed, frame_at, warm_video
from mmcache.prefetch.media.schedule import WEIGHTS
from mmcache.prefetch.media.task import KINDS
from mmcache.prefetch.media.task import Kind as Kind_

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRAME_MS = 40.0
"""Of one frame at 25 a second: the least error that a file can show."""
SPEECH_MS = 100.0
"""A tenth of a second, which nobody notices between sound and picture."""
MADE = (
    (Kind("plain"), 3),
    (Kind("long", slides=6), 1),
    (Kind("fades", fades=True), 2),
    (Kind("variable", variable=True), 2),
    (Kind("rotated", rotation=90), 1),
    (Kind("mute", sound=False), 1),
)
"""Kinds of talks, and how many a seed."""
BUDGETS = (0.25, 0.5, 0.75)
APPLICATIONS: dict[str, tuple[Kind_, ...]] = {"everything": KINDS, "speech": ("asr",)}
"""What an application asks for."""
MOMENTS = 30
"""Random moments of a talk that are asked about."""
KILLED_AT = (0.2, 0.5, 0.8)
HOLES = 3
"""Files of each way of damage that a talk is made into."""


class WarmTable(Table):
    """Alignment, reading, hearing, hits."""

    name: ClassVar[str] = "warm"
    title: ClassVar[str] = "Warming a video: alignment in time, what is read and heard, and what later requests save"
    remark: ClassVar[str] = (
        "Nothing was published for this; the targets are one frame (40 ms) for pictures, and a tenth of a second for "
        "speech. How much is read and heard right is the models' doing (PP-OCRv4 drops spaces in English; Whisper is "
        "tiny.en), and stands here without a target. `hits/any-frame` is what an application gets that takes frames "
        "where it likes instead of those that the timeline names: other pixels are other content. `in-turn` does all "
        "frames, then all print, then all speech. Where everything is asked for and the budget ends early, it wins by "
        "count (print is many cheap requests) and loses by the model time that requests save, which is what warming is "
        "for; speech it hardly reaches. Of scratched files FFmpeg conceals some damage without a word, so not all of "
        "it can be told. The published weights stay the default: on three other talks (half of the model time) they "
        "saved 64 % of later model time at 38 % of hits; print at 0.25 saved 53 % at 49 %; none of six others saved "
        "more."
    )

    def __init__(self) -> None:
        self._curves: dict[str, dict[float, list[float]]] = {}

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Real decoders and models; talks from `seeds`. Raises `AssetError`, `SettingsError`."""
        models = Models()
        with tempfile.TemporaryDirectory(prefix="mmcache-warm-") as name:
            talks = list(_talks(Path(name), seeds[:1] if quick else seeds, quick, progress))
            rows = list(self._rows(models, talks, Path(name), quick, progress))
        return Result(
            self.name,
            quick,
            tuple(seeds),
            (
                f"{len(talks)} files in H.264 and AAC, decoded by PyAV; easy-VQA's pictures on the slides",
                "PP-OCRv4 finds and reads, Silero listens, Whisper tiny.en hears, DINOv2 ViT-S/14 and "
                "multilingual-e5-small encode; one thread each",
                "the product's own pipeline, schedule, journal and cache",
            ),
            (
                "the talks: words from fixed lists by seed, speech by Piper (no seed: no two runs speak alike)",
                "when speech begins and ends: from its energy",
                f"later requests: what there is at {MOMENTS} random moments a talk",
                "budget rows replay the models' measured times on a clock of model time; decoding is left out of them",
            ),
            tuple(rows),
        )

    def _rows(
        self, models: Models, talks: Sequence[tuple[str, Talk]], folder: Path, quick: bool, progress: Progress
    ) -> Iterator[Row]:
        scores: dict[str, Score] = {}
        found: list[tuple[str, Talk, Warmed, float]] = []
        rest: list[float] = []
        for number, (kind, one) in enumerate(talks):
            progress("warming", number, len(talks))
            before, spent = models.seconds, models.spent
            warmed = warm_runs.warmed(models, one)
            found.append((kind, one, warmed, models.seconds - before))
            rest.append(60_000 * (warmed.seconds - models.spent + spent) / one.length_ms)
            scores.setdefault(kind, Score()).add(one, warmed.timeline)
        progress("warming", len(talks), len(talks))
        yield from _scored(scores)
        yield from _cost(found, rest)
        yield from _later(models, found, progress)
        yield from self._budgets(models, found, progress)
        yield from _damaged(models, folder, 1 if quick else HOLES, progress)
        yield from _killed(talks[0][1], folder, progress)

    def _budgets(
        self, models: Models, found: Sequence[tuple[str, Talk, Warmed, float]], progress: Progress
    ) -> Iterator[Row]:
        """What a part of the time is worth, by schedule; and after an application's use is known."""
        chosen = [one for one in found if one[0] == "long"]
        worth: dict[tuple[str, str, float], list[Worth]] = {}
        for number, (_, one, warmed, seconds) in enumerate(chosen):
            progress("budgets", number, len(chosen))
            random = np.random.default_rng(number)
            for app, kinds in APPLICATIONS.items():
                earlier, later = (Stream.of(one, warmed.timeline, random, MOMENTS, kinds) for _ in range(2))
                arms: dict[str, tuple[Mapping[Kind_, float], Uses | None]] = {
                    "weighted": (WEIGHTS, None),
                    "learned": (WEIGHTS, warm_runs.used(earlier, warmed)),
                    "in-turn": (warm_runs.IN_TURN, None),
                }
                for arm, (weights, uses) in arms.items():
                    for budget in BUDGETS:
                        share = warm_runs.within(models, one, seconds * budget, later, weights, uses)
                        worth.setdefault((app, arm, budget), []).append(share)
        progress("budgets", len(chosen), len(chosen))
        self._curves = {arm: {} for arm in ("weighted", "learned", "in-turn")}
        for (app, arm, budget), shares in worth.items():
            hits = [100 * share.hits for share in shares]
            saved = [100 * share.seconds for share in shares]
            what = f"after {budget:.0%} of the model time; asked for: {app}"
            yield Row.of(f"budget-{budget:.0%}/{app}/{arm}", f"later requests that hit {what}", "%", "higher", hits)
            if app == "speech":
                continue
            self._curves[arm][budget] = hits
            yield Row.of(
                f"budget-{budget:.0%}/{app}/{arm}/saved", f"model time of later requests saved {what}",
                "%", "higher", saved,
            )  # fmt: skip

    def plot(self, result: Result, figure: Figure) -> None:
        """Hits over the budget, by schedule."""
        if not self._curves:
            super().plot(result, figure)
            return
        figure.set_size_inches(6, 3.4)
        axes = figure.subplots()
        for (name, shares), colour in zip(self._curves.items(), ("#2f7d5b", "#2f5d8a", "#b5482f"), strict=True):
            means = [0.0, *(float(np.mean(hits)) for hits in shares.values()), 100.0]
            axes.plot([0, *(100 * budget for budget in shares), 100], means, marker="o", color=colour, label=name)
        axes.set_xlabel("model time spent, % of what everything takes")
        axes.set_ylabel("later requests that hit, %")
        axes.set_ylim(0, 102)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)


def _talks(folder: Path, seeds: Sequence[int], quick: bool, progress: Progress) -> Iterator[tuple[str, Talk]]:
    wanted = [
        (kind, seed, 10 * place + number)
        for seed in seeds
        for place, (kind, count) in enumerate(MADE)
        for number in range(1 if quick else count)
    ]
    for done, (kind, seed, number) in enumerate(wanted):
        progress("making talks", done, len(wanted))
        path = folder / f"{kind.name}-{seed}-{number}.mp4"
        yield kind.name, talk(path, 100 * seed + number, kind)
    progress("making talks", len(wanted), len(wanted))


def _errors(id: str, what: str, errors: Sequence[float], target: float | None) -> Iterator[Row]:
    if errors:
        yield Row.of(f"{id}/median", f"{what}, median", "ms", "lower", errors)
        yield Row.of(f"{id}/p95", f"{what}, P95", "ms", "lower", percentile(errors, 0.95), target=target)


def _share(id: str, what: str, part: float, whole: float, target: float | None = None) -> Iterator[Row]:
    if whole:
        yield Row.of(id, what, "%", "higher", 100 * part / whole, target=target)


def _scored(scores: dict[str, Score]) -> Iterator[Row]:
    for kind, score in scores.items():
        errors = f"a scene's start against the first frame that shows it ({kind})"
        yield from _errors(f"scene/{kind}", errors, score.scene_ms, FRAME_MS)
        yield from _share(f"scene/{kind}/found", "changes that were found", len(score.scene_ms), score.changes, 99.0)
        yield from _share(f"scene/{kind}/true", "scenes that are changes", len(score.scene_ms), score.scenes)
        yield from _errors(f"line/{kind}", "a line's first reading against when it appears", score.line_ms, FRAME_MS)
        yield from _share(f"line/{kind}/found", "lines that were found", len(score.line_ms), score.lines)
        yield from _errors(f"speech/{kind}", "a sentence's start against its sound", score.start_ms, SPEECH_MS)
        yield from _share(f"speech/{kind}/found", "sentences that were found", len(score.start_ms), score.sentences)
    whole = list(scores.values())
    overlaps = [one for score in whole for one in score.overlap]
    lines = sum(score.lines for score in whole)
    yield Row.of(
        "line/overlap",
        "found box over printed box, intersection over union",
        "%",
        "higher",
        [100 * o for o in overlaps],
    )
    yield from _share("line/exact", "lines read exactly", sum(score.exact for score in whole), lines)
    letters = sum(score.exact_but_spaces for score in whole)
    yield from _share("line/exact-but-spaces", "lines read exactly, spaces aside", letters, lines)
    ends = [one for score in whole for one in score.end_ms]
    yield from _errors("speech-end/all", "a sentence's end against its sound", ends, None)
    wrong, words = sum(score.wrong_words for score in whole), sum(score.words for score in whole)
    yield Row.of("speech/word-errors", "wrong words of those said (WER)", "%", "lower", 100 * wrong / max(1, words))
    extra = sum(score.segments - len(score.start_ms) for score in whole)
    yield Row.of("speech/invented", "stretches of speech beyond the sentences", "", "lower", float(max(0, extra)))


def _cost(found: Sequence[tuple[str, Talk, Warmed, float]], rest: Sequence[float]) -> Iterator[Row]:
    plain = [one for one in found if one[0] == "plain"]
    seen, kept = sum(w.frames_seen for _, _, w, _ in plain), sum(len(w.timeline.scenes) for _, _, w, _ in plain)
    yield Row.of("frames/kept", f"frames kept, of {seen} (plain)", "%", "lower", 100 * kept / seen)
    rates = [60_000 * s / one.length_ms + more for (_, one, _, s), more in zip(found, rest, strict=True)]
    yield Row.of("time/warm", "seconds to warm a minute of talk", "s", "lower", rates)
    yield Row.of("time/rest", "of these, decoding, looking for changes, storing", "s", "lower", rest)


def _later(models: Models, found: Sequence[tuple[str, Talk, Warmed, float]], progress: Progress) -> Iterator[Row]:
    """An application's requests, cold and warm, and a second warming after a restart."""
    rates: dict[str, list[float]] = {"cold": [], "warm": []}
    waits: dict[str, list[float]] = {"cold": [], "warm": []}
    again: list[float] = []
    anyhow: list[float] = []
    chosen = [one for one in found if one[0] in ("plain", "long")]
    for number, (_, one, warmed, _) in enumerate(chosen):
        progress("later requests", number, len(chosen))
        stream = Stream.of(one, warmed.timeline, np.random.default_rng(number), MOMENTS, KINDS)
        with tempfile.TemporaryDirectory() as folder:
            with Cache() as cache:
                share, seconds = stream.play(models.encoders(cache), models)
                rates["cold"].append(100 * share)
                waits["cold"] += seconds
            with Cache(folder) as cache:
                warm_video(cache, one.path, models.encoders(cache))
            with Cache(folder) as cache:
                encoders = models.encoders(cache)
                began = time.perf_counter()
                warm_video(cache, one.path, encoders)
                again.append(1000 * (time.perf_counter() - began))
            with Cache(folder) as cache:
                share, seconds = stream.play(models.encoders(cache), models)
                rates["warm"].append(100 * share)
                waits["warm"] += seconds
            with Cache(folder) as cache:
                times = np.random.default_rng(number).uniform(0, one.length_ms, MOMENTS)
                frames = Stream([("frame", frame_at(one.path, int(ms)), None) for ms in times])
                anyhow.append(100 * frames.held(cache, models.encoders(cache), models).hits)
    progress("later requests", len(chosen), len(chosen))
    for arm, shares in rates.items():
        target = 99.0 if arm == "warm" else None
        yield Row.of(f"hits/{arm}", f"later requests that hit, {arm}", "%", "higher", shares, target=target)
        yield Row.of(
            f"wait/{arm}/mean", f"mean wait of a later request, {arm}", "ms", "lower", 1000 * float(np.mean(waits[arm]))
        )
        yield Row.of(
            f"wait/{arm}/p95", f"P95 wait of a later request, {arm}", "ms", "lower", 1000 * percentile(waits[arm], 0.95)
        )
    yield Row.of(
        "hits/any-frame", "frames at random moments that hit, warm, whatever frame it is", "%", "higher", anyhow
    )
    yield Row.of("time/again", "warming what is warm, in another process's cache", "ms", "lower", again)


def _damaged(models: Models, folder: Path, holes: int, progress: Progress) -> Iterator[Row]:
    """Of files that lack their end, or hold holes: what is still used."""
    survived, files, told = 0, 0, 0
    scores = {"cut": Score(), "scratched": Score()}
    for number in range(holes):
        progress("damaged files", number, holes)
        one = talk(folder / f"whole-{number}.mkv", 9000 + number)
        for hole in range(holes):
            for way, score in scores.items():
                path = folder / f"{way}-{number}-{hole}.mkv"
                if way == "cut":
                    cut_short(one.path, path, 0.3 + 0.2 * hole)
                else:
                    scratched(one.path, path, seed=hole)
                files += 1
                try:
                    with Cache() as cache:
                        encoders = models.encoders(cache).only(frames=True, ocr=False, asr=False)
                        warmed = warm_video(cache, path, encoders)
                except InvalidInputError:  # nothing of it could be used
                    continue
                survived += 1
                told += bool(warmed.timeline.fault_count)
                end = max((scene.frame_ms for scene in warmed.timeline.scenes), default=0)
                score.add(one, warmed.timeline, end + 1 if way == "cut" else float("inf"))
    progress("damaged files", holes, holes)
    yield from _share("damaged/used", "damaged files of which what could be read was used", survived, files, 100.0)
    yield from _share("damaged/told", "damaged files of which damage was told", told, files)
    for way, score in scores.items():
        yield from _errors(
            f"scene/{way}", f"a scene's start against the first frame that shows it ({way})", score.scene_ms, None
        )
        yield from _share(f"scene/{way}/found", "changes that were found", len(score.scene_ms), score.changes)


def _killed(one: Talk, folder: Path, progress: Progress) -> Iterator[Row]:
    """Real processes that warm with plain models are killed at different moments, and others go on."""
    whole = Calls()
    with Cache() as cache:
        timeline = warm_video(cache, one.path, whole.encoders(cache)).timeline
    same, twice = 0, []
    stops = [round(whole.total * share) for share in KILLED_AT]
    for number, stop in enumerate(stops):
        progress("killed", number, len(stops))
        root = folder / f"killed-{number}"
        kill(root, one.path, stop)
        rest = Calls()
        with Cache(root) as cache:
            same += warm_video(cache, one.path, rest.encoders(cache)).timeline == timeline
        twice.append(float(rest.total + stop - 1 - whole.total))
    progress("killed", len(stops), len(stops))
    yield from _share("killed/same", "timelines that are whole and the same after kill -9", same, len(stops), 100.0)
    yield Row.of("killed/twice", f"computations done twice after it, of {whole.total}", "", "lower", twice)
