"""Table `vlm`: pictures into words, end to end: nothing kept, text kept, blocks of pictures kept.

Published for comparison: 1247 / 982 / 639 ms, 28.3 / 26.1 / 19.7 GB, BLEU-4 lost 0 / 0.42 / 0.08 (no cache, text-only
KV cache, blocks of all modalities). Another model on other machines: only ratios are compared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from mmcache.lab.captioner.model import VARIANTS
from mmcache.lab.engines import vlm_stream
from mmcache.lab.measure import busy, machine
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.lab.vlm_runs import Answers, Captions, Run, answers, captions, zipf
from mmcache.model.errors import AssetError

NONE_MS, TEXT_MS, OURS_MS = 1247.0, 982.0, 639.0
NONE_GB, OURS_GB = 28.3, 19.7
TEXT_LOST, OURS_LOST = 0.42, 0.08

_WHAT = {
    "none": "nothing kept",
    "system": "text-only: keys and values of the system prompt kept",
    "prefix": "prefix cache: keys and values of every beginning of a prompt kept",
    "ours": "encoder output, and keys and values of the picture's piece, kept",
    "ours+fp16": "the same, at rest in FP16",
    "ours+int4": "the same, at rest in INT4",
}
_WHAT_VQA = {
    "none": "nothing kept",
    "ours": "encoder output kept",
    "ours+int4": "encoder output kept, at rest in INT4",
    "ours+answers": "whole answers kept",
}


class VLMTable(Table):
    """Latency, memory and what is lost, for two real models that look at pictures, and through vLLM."""

    name: ClassVar[str] = "vlm"
    title: ClassVar[str] = "Pictures into words, end to end: no cache, text-only KV cache, blocks of pictures"
    remark: ClassVar[str] = (
        "`captioner` is DINOv2 → captions → SmolLM2-135M: the picture's piece of the prompt is words (captions of "
        "the six drawings that look most like it), so a prefix cache by tokens (`prefix`) can keep it as well, "
        "and pays the encoder alone. Requests take turns through all variants, a process each. Memory is the "
        "largest resident set of a process: nearly all of it is weights and runtimes, which no cache takes away, "
        "and blocks that are kept come on top, so the published saving of a third is not seen here. Sentences are "
        "short, and BLEU-4 against Unicode's names and tags is low for a model of this size; where it is 0 with "
        "nothing kept, nothing can be lost of it, and those rows say nothing and have no target. What is lost is "
        "then told by `equal` (sentences that are word for word those with nothing kept) and `apart` (logits). "
        "`vqa` is the repository's own model: its question is read while it looks at the picture, so keys and "
        "values of the text alone cannot be kept, and that variant has no row. Published figures are of other "
        "models and machines; targets are their ratios. How strongly the gallery's features are whitened was "
        "chosen among three values on 160 of Twemoji's drawings, which pictures of the table may be among. The "
        "rows through vLLM are there where its environment is (`make vllm-venv`); its encoder cache, which has "
        "room for one picture, is on in all but `none`, and the KV cache holds about eight pictures."
    )

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """`seeds` draw the streams. Raises `AssetError` where models or data are missing."""
        warned = busy()
        seeds = seeds[:1] if quick else seeds
        variants = ("none", "system", "ours") if quick else VARIANTS
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            said = captions(variants, folder, 8 if quick else 30, 3 if quick else 15, seeds, progress)
            told = answers(folder, 20 if quick else 200, 10 if quick else 80, seeds, progress)
            vllm, why = _vllm(folder, quick, progress)
        return Result(
            self.name,
            quick,
            tuple(seeds),
            (
                "DINOv2 ViT-S/14 and SmolLM2-135M-Instruct (from its Q4_1 file, computed in float32), greedy decoding",
                "emoji as drawn by Twemoji; the gallery holds those by Noto and Fluent, with Unicode's names and tags",
                "easy-VQA's test pictures and questions, through the repository's own vision-language model",
                f"the product's own cache, keys and values stored through it as tensors; {machine()}",
                *warned,
            ),
            (
                f"popularity: Zipf's law (exponent 0.9); {100 * said.repeats:.0f} % of requests are about a picture "
                "that was asked about before",
                "the pictures are drawings: no photographs",
                *why,
            ),
            (*_captions(said), *_answers(told), *vllm),
        )


def _latency(part: str, name: str, what: str, run: Run) -> list[Row]:
    return [
        Row.of(f"{part}/{name}/{label}", f"{what}: {label.upper()} of a request", "ms", "lower",
               run.quantile(share))
        for label, share in (("p50", 0.5), ("p99", 0.99))
    ]  # fmt: skip


def _ratio(id: str, metric: str, ours: Run, theirs: Run, target: float | None = None) -> Row:
    values = [mine / other for mine, other in zip(ours.quantile(0.5), theirs.quantile(0.5), strict=True)]
    return Row.of(id, metric, "x", "lower", values, target=target, published=target)


def _captions(found: Captions) -> list[Row]:
    runs, rows = found.runs, list[Row]()
    for name, run in runs.items():
        rows += _latency("captioner", name, _WHAT[name], run)
    rows += [
        _ratio("captioner/ours/of-none", "P50 with blocks ÷ P50 with nothing kept", runs["ours"], runs["none"],
               OURS_MS / NONE_MS),
        _ratio("captioner/ours/of-text", "P50 with blocks ÷ P50 with a text-only KV cache", runs["ours"],
               runs["system"], OURS_MS / TEXT_MS),
    ]  # fmt: skip
    if "prefix" in runs:
        rows.append(_ratio("captioner/ours/of-prefix", "P50 with blocks ÷ P50 with a prefix cache", runs["ours"],
                           runs["prefix"]))  # fmt: skip
    for name, run in runs.items():
        rows.append(Row.of(f"captioner/{name}/memory", f"{_WHAT[name]}: largest resident set", "MB", "lower",
                           run.peak / 1e6))  # fmt: skip
    rows.append(
        Row.of("captioner/ours/memory-of-none", "largest resident set with blocks ÷ with nothing kept", "x", "lower",
               runs["ours"].peak / runs["none"].peak, target=OURS_GB / NONE_GB, published=OURS_GB / NONE_GB)
    )  # fmt: skip
    for name, run in runs.items():
        rows.append(Row.of(f"captioner/{name}/encoded", f"{_WHAT[name]}: runs of the encoder, of "
                           f"{len(run.said)} requests", "count", "lower", run.encoded))  # fmt: skip
    whole = found.bleu("none")
    rows.append(Row.of("captioner/none/bleu", "BLEU-4 against Unicode's names and tags, nothing kept", "%", "higher",
                       whole))  # fmt: skip
    for name in runs:
        if name != "none":
            lost = OURS_LOST if name == "ours" and whole else None
            equal = [a == b for a, b in zip(runs[name].said, runs["none"].said, strict=True)]
            published = {"ours": OURS_LOST, "system": TEXT_LOST}.get(name)
            rows += [
                Row.of(f"captioner/{name}/bleu-lost", f"BLEU-4 lost by it: {_WHAT[name]}", "points", "lower",
                       whole - found.bleu(name), target=lost, published=published),
                Row.of(f"captioner/{name}/same", f"BLEU-4 against what is said with nothing kept: {_WHAT[name]}", "%",
                       "higher", found.bleu(name, "none")),
                Row.of(f"captioner/{name}/equal", f"sentences word for word as with nothing kept: {_WHAT[name]}", "%",
                       "higher", 100 * float(np.mean(equal)), target=100.0 if name == "ours" else None),
            ]  # fmt: skip
    rows += [
        Row.of(f"captioner/{name}/apart", "largest difference of a logit, from stored keys and values and computed "
               f"ones: {_WHAT[name]}", "logits", "lower", apart, target=0.0 if name == "ours" else None)
        for name, apart in found.apart.items()
    ]  # fmt: skip
    rows += [
        Row.of("captioner/ours/named", "sentences with the picture's name in them", "%", "higher",
               found.names("ours")),
        Row.of("captioner/ours/named-other", "the same for another picture's name (control)", "%", "lower",
               float(np.mean([found.names("ours", shift) for shift in (1, 2, 3)]))),
    ]  # fmt: skip
    return rows


def _answers(found: Answers) -> list[Row]:
    rows: list[Row] = []
    for name, run in found.runs.items():
        rows += _latency("vqa", name, _WHAT_VQA[name], run)
    rows.append(_ratio("vqa/ours/of-none", "P50 with encoder output kept ÷ with nothing kept", found.runs["ours"],
                       found.runs["none"], OURS_MS / NONE_MS))  # fmt: skip
    for name, right in found.right.items():
        rows.append(Row.of(f"vqa/{name}/right", f"{_WHAT_VQA[name]}: right answers", "%", "higher", right))
        if name != "none":
            same = [a == b for a, b in zip(found.runs[name].said, found.runs["none"].said, strict=True)]
            rows.append(Row.of(f"vqa/{name}/same", f"{_WHAT_VQA[name]}: answers as with nothing kept", "%", "higher",
                               100 * float(np.mean(same)), target=100.0 if name != "ours+int4" else None))  # fmt: skip
    return rows


def _vllm(folder: Path, quick: bool, progress: Progress) -> tuple[list[Row], list[str]]:
    """Rows through vLLM, and why there are none."""
    if quick:
        return [], []
    files = sorted(folder.glob("*.png"))[:12]
    stream = [
        vlm_stream.Asked(files[draw], f"w{number % 3} w9")
        for number, draw in enumerate(zipf(len(files), 36, np.random.default_rng(0)))
    ]
    runs: dict[vlm_stream.Variant, vlm_stream.StreamRun] = {}
    try:
        for variant in _VLLM:
            progress("through vLLM", len(runs), 3)
            (folder / "vllm").mkdir(exist_ok=True)
            runs[variant] = vlm_stream.run_vllm(stream, variant, folder=folder / "vllm")
    except AssetError as error:
        return [], [f"no rows through vLLM: {error}"]
    rows: list[Row] = []
    for name, run in runs.items():
        ms = [one.ms for one in run.served]
        rows += [
            Row.of(f"vllm/{name}/p50", f"vLLM, {_VLLM[name]}: a request", "ms", "lower", float(np.quantile(ms, 0.5))),
            Row.of(f"vllm/{name}/p99", f"vLLM, {_VLLM[name]}: P99", "ms", "lower", float(np.quantile(ms, 0.99))),
            Row.of(f"vllm/{name}/memory", f"vLLM, {_VLLM[name]}: largest resident set", "MB", "lower",
                   run.peak_bytes / 1e6),
        ]  # fmt: skip
    same = [a.tokens == b.tokens for a, b in zip(runs["ours"].served, runs["none"].served, strict=True)]
    rows.append(Row.of("vllm/ours/same", "vLLM: tokens as with nothing kept", "%", "higher", 100 * float(np.mean(same)),
                       target=100.0))  # fmt: skip
    return rows, ["the model behind vLLM has random weights: its times are real, its words are not"]


_VLLM: dict[vlm_stream.Variant, str] = {
    "none": "nothing kept",
    "prefix": "its own prefix cache and encoder cache",
    "ours": "those and our connector",
}
