"""Table `vllm`: vLLM's encoder outputs, kept by nobody, by its own connector, by LMCache and by ours."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mmcache.lab.engines.process import Engine, Kind
from mmcache.lab.engines.vllm_scenes import Found, Pictures, Right, Scenes, lossy, total
from mmcache.lab.table import Progress, Result, Row, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: tuple[Kind, ...] = ("stock", "example", "lmcache", "ours")
TIMED = ("cold", "repeat", "evicted", "shared", "restarted")
WORDS = {
    "cold": "a picture for the first time",
    "repeat": "the same at once, other question",
    "evicted": "the same after others, other question",
    "shared": "asked of a second engine",
    "restarted": "asked of an engine started later",
}
SPEEDUP = 3.0
"""What a loaded output must save, as cold over restarted: the published prototype had 1 620 over 452 ms."""


@dataclass(frozen=True)
class Ran:
    """All contenders of a run."""

    found: dict[str, Found]
    codec: Found | None
    error: dict[str, float]


class VLLMTable(Table):
    """Latency, right answers, and what stays inside."""

    name: ClassVar[str] = "vllm"
    title: ClassVar[str] = "vLLM: encoder outputs that survive restarts, by content and tenant"
    remark: ClassVar[str] = (
        "Real engines of vLLM 0.32 for CPUs on a little LLaVA with random weights (CLIP 12 × 768, Llama 2 × 256), "
        "one request at a time; its language model is so small that nearly all of a cold request is the picture's "
        "encoder. `stock`: vLLM as it comes; `example`: its ECExampleConnector; `lmcache`: LMCache's encoder engine"
        " with a folder as its remote store, through its own adapter, installed without its (CUDA) dependencies; "
        "`ours`: MMCacheConnector and MMCacheScheduler with the processor cache off, which costs each request the "
        "resizing of its picture. Every question begins with another word, so that the prefix cache never has the "
        "picture; the engine's own encoder cache has room for one picture. Wrong: an answer whose tokens or log-"
        "probabilities are not those that the model computes for that picture without any cache. `uuid`: two "
        "pictures under one user-given uuid; `outside`: a uuid `../outside/x`, and what then lies outside of the "
        "contender's folder; `salt`: one picture without and under two `cache_salt`s, where each tenant encodes for"
        " itself; `bmp`: the same pixels in another file; `jpeg`: other pixels, which must be encoded. `died`: vLLM"
        " ends its engine when a connector has said that an output exists and then does not bring it; what a dead "
        "engine had still to do has no rows, and is neither fast nor slow. `int4`: "
        "loaded outputs are not what was encoded, but each value within half a step of its channel; the weights are"
        " random, so that what it costs in answers says little about a trained model. Shapes of a run on a busy "
        "machine hold, its milliseconds do not. `--quick` takes about two minutes, most of them for engines to start."
    )  # fmt: skip
    default_seeds: ClassVar[tuple[int, ...]] = (0,)

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """All contenders; `quick`: stock and ours, without a second engine. Raises `AssetError` without vLLM."""
        ran = _run(quick, progress)
        self._found = ran.found
        rows = [row for kind, found in ran.found.items() for row in _rows(kind, found, quick)]
        rows += [*_gains(ran.found), *_codec(ran)]
        return Result(
            self.name,
            quick,
            tuple(seeds)[:1],
            (
                "vLLM 0.32 for CPUs, a process for each engine; a LLaVA of 86 M parameters made from configurations",
                "a photograph and frames of three videos; tokens and log-probabilities of every answer are compared "
                "with an engine that has no cache",
            ),
            ("the model's weights are random: its answers mean nothing, but depend on every picture",),
            tuple(rows),
        )

    def plot(self, result: Result, figure: Figure) -> None:
        """Latency of each scene by contender, on a logarithmic axis."""
        from statistics import median

        found: dict[str, Found] = getattr(self, "_found", {})
        axes = figure.subplots()
        figure.set_size_inches(9, 3.5)
        width = 0.8 / max(1, len(found))
        colours = {"stock": "#8793a6", "example": "#b5884b", "lmcache": "#5b7fa6", "ours": "#2f7d5b"}
        for place, (kind, one) in enumerate(found.items()):
            scenes = [scene for scene in TIMED if scene in one.ms]
            axes.bar(
                [TIMED.index(scene) + place * width for scene in scenes],
                [median(one.ms[scene]) for scene in scenes],
                width, label=kind, color=colours.get(kind),
            )  # fmt: skip
        axes.set(yscale="log", ylabel="ms", xticks=[n + 0.3 for n in range(len(TIMED))], xticklabels=TIMED)
        axes.legend(frameon=False)


def _run(quick: bool, progress: Progress) -> Ran:
    kinds: tuple[Kind, ...] = ("stock", "ours") if quick else KINDS
    done = 0

    def say(what: str) -> None:
        nonlocal done
        done += 1
        progress(what, done, 6 if quick else 16)

    with tempfile.TemporaryDirectory(prefix="mmcache-vllm-") as place:
        folder = Path(place)
        pictures = Pictures.make(folder / "pictures", 3 if quick else 6)
        say("the model")
        with ExitStack() as stack:
            plain = Engine("none", folder=folder, store=folder / "none")
            stack.callback(plain.kill)
            right = Right(plain.launch())
            scenes: dict[Kind, Scenes] = {kind: Scenes(kind, folder, pictures, right, {}) for kind in kinds}
            if quick:  # nobody believes the milliseconds of a quick run, so its engines may load at the same time
                for each in scenes.values():
                    stack.callback(each.drop)
                    each.launch()
            stack.enter_context(plain).ask(None, "w0")
            right.check(pictures.files)
            found: dict[str, Found] = {
                kind: each.run(share=not quick, restart=not quick or kind == "ours", say=say)
                for kind, each in scenes.items()
            }
            if quick:
                return Ran(found, None, {})
            say("int4")
            codec, error = lossy(folder, pictures, right, "int4")
    return Ran(found, codec, error)


def _rows(kind: str, found: Found, quick: bool) -> list[Row]:
    ours = kind == "ours"
    rows = [
        Row.of(f"{kind}/{scene}", WORDS[scene], "ms", "lower", found.ms[scene]) for scene in TIMED if scene in found.ms
    ]
    for scene, counts in found.encoded.items():
        if scene in ("repeat", "evicted", "shared", "restarted"):
            share = 100.0 * sum(counts) / len(counts)
            target = 0.0 if ours else None
            rows.append(Row.of(f"{kind}/{scene}/encoded", "pictures encoded again", "%", "lower", share, target=target))
    once = (
        ("bmp/encoded", "the same pixels in another file, encoded again", "times", "lower",
         found.encoded.get("bmp", [])[-1:], 0),
        ("jpeg/encoded", "other pixels, encoded", "times", "higher", found.encoded.get("jpeg"), 1),
        ("salt/encoded", "tenants (of two) that did not get another's output", "tenants", "higher",
         found.encoded.get("salt", [])[1:], 2),
        ("uuid/wrong", "answers (of four) about another picture of the same uuid", "answers", "lower",
         found.wrong.get("uuid"), 0),
        ("uuid/restarted/wrong", "the same after a restart, of one", "answers", "lower",
         found.wrong.get("uuid restarted"), 0),
        ("outside", "made outside of its folder", "files", "lower", [found.outside], 0),
        ("wrong", f"wrong answers of all {sum(map(len, found.wrong.values()))}", "answers", "lower",
         [total(found.wrong)], 0),
        ("died", "engines that ended by themselves" + "".join(f" ({said[:70]})" for said in found.died[:1]), "engines",
         "lower", [len(found.died)], 0),
    )  # fmt: skip
    return rows + [
        Row.of(f"{kind}/{id}", words, unit, better, sum(counts), target=target if ours else None)  # type: ignore[arg-type]
        for id, words, unit, better, counts, target in once
        if counts
    ]


def _gains(found: dict[str, Found]) -> list[Row]:
    """Cold over loaded, picture by picture, and against stock."""
    ours, stock = found["ours"], found["stock"]
    rows = []
    for scene in ("evicted", "shared", "restarted"):
        if scene in ours.ms:
            ratios = [cold / warm for cold, warm in zip(ours.ms["cold"], ours.ms[scene], strict=False)]
            target = SPEEDUP if scene == "restarted" else None
            rows.append(Row.of(f"gain/{scene}", f"cold over {scene}, ours", "x", "higher", ratios, target=target))
    over = [mine / theirs for mine, theirs in zip(ours.ms["cold"], stock.ms["cold"], strict=False)]
    rows.append(Row.of("cost/cold", "a cold request, ours over stock", "x", "lower", over))
    return rows


def _codec(ran: Ran) -> list[Row]:
    if ran.codec is None:
        return []
    return [
        Row.of("int4/restarted", "loaded from INT4", "ms", "lower", ran.codec.ms["restarted"]),
        Row.of("int4/bytes", "at rest, of bfloat16's", "x", "lower", ran.error["bytes"]),
        Row.of("int4/error", "largest error of a value, of its bound", "x", "lower", ran.error["worst"], target=1.0),
        Row.of("int4/relative", "error of an output (L2)", "x", "lower", ran.error["relative"]),
        Row.of("int4/shift", "change of a log-probability, where the tokens are the same", "nats", "lower",
               ran.codec.shift or [0.0]),
        Row.of("int4/tokens", "answers with other tokens or log-probabilities", "%", "lower",
               100.0 * total(ran.codec.wrong) / len(ran.codec.ms["restarted"])),
    ]  # fmt: skip
