"""The rows of table `hotkeys`: its verdict first, then what attention adds; and all figures as CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

from mmcache.lab.hotkeys_judged import Judged
from mmcache.lab.hotkeys_stream import Kind
from mmcache.lab.table import Row, percentile

PUBLISHED = 82.6
"""F1, %."""
Task = Literal["turns", "next"]
TASKS: Mapping[Task, str] = {"turns": "turns hot", "next": "is hot"}
STREAMS: Mapping[Kind, str] = {"trends": "topics trend", "control": "groups of unrelated pictures trend",
                               "planted": "sure pictures burst (made so)"}  # fmt: skip
WORDS = {
    "live": "the product's formula by default: heat alone, half-life chosen on earlier time",
    "live/+": "the product's formula with attention as published, half-life chosen on earlier time",
    "live/-": "the product's formula with attention, KL the other way, half-life chosen on earlier time",
    "frequency": "uses so far",
    "window": "uses in the last window",
    "heat/0.5": "uses, halved each half window",
    "heat/1": "uses, halved each window",
    "heat/3": "uses, halved every 3 windows",
    "heat/10": "uses, halved every 10 windows",
    "score/+": "0.7 H + 0.3 KL, as published",
    "score/-": "0.7 H - 0.3 KL, as the publication's text has it",
    "all": "every key is called hot: what chance gives",
    "behaviour": "fitted on earlier uses",
    "combined": "fitted on earlier uses and attention",
    "oracle": "knows the rates of the next window: nobody can; what is left is chance",
    "random": "at random",
    "entropy": "H(text attention)",
    "entropy, lower is hotter": "-H(text attention)",
    "divergence": "KL(text || image attention)",
    "divergence, lower is hotter": "-KL(text || image attention)",
    "attention": "fitted on earlier attention: H, KL, and how both change",
}
SHOWN: Mapping[Task, tuple[str, ...]] = {
    "turns": ("live", "frequency", "window", "heat/0.5", "heat/1", "heat/3", "heat/10", "score/+", "score/-", "all",
              "behaviour", "combined", "oracle"),
    "next": ("live", "frequency", "window", "score/+", "score/-", "all", "oracle"),
}  # fmt: skip
"""In the table, of the stream in which topics trend; all else is in the CSV file."""
GAINS = {
    "chance": ("score/+", "all", "the published score alone, less calling every key hot"),
    "sign": ("score/+", "score/-", "the score alone: + KL less - KL"),
    "live": ("live/+", "live", "heat with the published score, less heat alone"),
    "fitted": ("combined", "behaviour", "fitted on uses and attention, less fitted on uses"),
    "sure": ("entropy, lower is hotter", "all", "-H(text attention), less calling every key hot"),
}

Findings = dict[tuple[Kind, Task, str], list[Judged]]
"""(stream, task, rule) → a finding a seed."""


def rows(found: Findings) -> Iterator[Row]:
    """How good the product's score is, beside the rules that it must beat; then what attention adds."""
    for task, rules in SHOWN.items():
        for rule in rules:
            goal = PUBLISHED if rule == "live" else None
            yield Row.of(
                f"{task}/{rule}", f"F1, {TASKS[task]} in the next window; {WORDS[rule]}", "%", "higher",
                [100 * one.f1 for one in found["trends", task, rule]],
                target=goal if task == "turns" else None, published=goal,
            )  # fmt: skip
    for name, (one, other, words) in GAINS.items():
        for kind, stream in STREAMS.items():
            both = zip(found[kind, "turns", one], found[kind, "turns", other], strict=True)
            yield Row.of(
                f"gain/{name}/{kind}", f"F1, turns hot, {stream}; {words}", "points", "higher",
                [100 * (mine.f1 - theirs.f1) for mine, theirs in both],
            )  # fmt: skip


def chosen(found: Findings) -> str:
    """Which half-lives the product's formula took, and how often."""
    halves = Counter(one.half_life for kind in STREAMS for one in found[kind, "turns", "live"])
    return ", ".join(f"{half:g} in {count}" for half, count in sorted(halves.items()) if half is not None)


def csv(found: Findings) -> str:
    """Every stream, task and rule, over the seeds: percent, median and 10th to 90th percentile."""
    lines = ["stream,task,rule,f1,f1_p10,f1_p90,precision,recall,average_precision,half_lives"]
    for (kind, task, rule), judged in found.items():
        f1 = [100 * one.f1 for one in judged]
        medians = [
            percentile([100 * value for value in values], 0.5)
            for values in (
                [one.precision for one in judged],
                [one.recall for one in judged],
                [one.average_precision for one in judged],
            )
        ]
        figures = [percentile(f1, 0.5), percentile(f1, 0.1), percentile(f1, 0.9), *medians]
        halves = " ".join(f"{one.half_life:g}" for one in judged if one.half_life is not None)
        lines.append(f'{kind},{task},"{rule}",{",".join(f"{figure:.3f}" for figure in figures)},{halves}')
    return "\n".join(lines) + "\n"
