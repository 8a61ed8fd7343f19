"""Table `gateways`: mmcache beside other answer caches on the same stream of chat requests (H2, H7)."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mmcache.lab.gateways.contest import Contest, Found, Outcome, contest
from mmcache.lab.gateways.install import OURS, QUICK, STEPS
from mmcache.lab.gateways.stream import CHANCE, EXPONENT, FAMILIES, QUALITY, REPEATS
from mmcache.lab.table import Progress, Result, Row, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OUTCOMES: tuple[Outcome, ...] = ("right", "wrong", "leak", "frozen", "miss", "changed", "failed")
COLOURS = {"right": "#2f7d5b", "wrong": "#b5482f", "leak": "#7a2f8f", "frozen": "#c9a227", "miss": "#d5dae2"}
LEAST_PAIRS = 10


class GatewaysTable(Table):
    """Right hits, wrong hits, leaks, latency, install steps."""

    name: ClassVar[str] = "gateways"
    title: ClassVar[str] = (
        "Beside GPTCache, LiteLLM's, RedisVL's and LangChain's caches: right hits, wrong hits, leaks, times"
    )
    remark: ClassVar[str] = (
        "A hit is a request that did not reach the upstream, by the upstream's own count. `right`: the same answer as "
        "the upstream gives to exactly this request when asked directly, computed for the same tenant. `wrong`: "
        "another one. `leaks`: computed for another tenant's API key, even where the words are the same. `frozen`: "
        "sampling without a seed was asked for, and an old sample came (LangChain and LiteLLM do that by default, and "
        "so does our LangChain door, unless `deterministic_only`). `perfect` is a cache that knows what requests mean; "
        "it is not reached: exact keys do not see through a JPEG or other words, and `serve` gives no streamed "
        "answer for a whole one, knows PNG and BMP of equal pixels but not lossless WebP, keeps no answer that "
        "`max_tokens` cut off, and takes documented defaults that are spelled out (`top_p: 1`) for another request, "
        "because servers have defaults of their own. `serve/semantic` promises at most 1 % of wrong near hits, and "
        "the stream is far too short for such a certificate, so it has no near hits here. LangChain asks no cache when "
        "it streams. LiteLLM's and LangChain's keys know no tenant by default; with LiteLLM a namespace for each call "
        "keeps them apart. GPTCache's and RedisVL's documented recipes look at the last message's text; `content` is "
        "what a careful user might do, and the other fields of the request are still not looked at. Their shipped "
        "thresholds take most of these short questions, embedded by e5, for alike. Latencies of `serve` are those of "
        "an HTTP client and include loopback TCP; those of libraries are calls in the application's process. "
        "`added` is what a miss takes more than the same client without the cache, pair by pair."
    )

    def __init__(self) -> None:
        self._contest: Contest | None = None

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Raises `AssetError` where the model or its pictures are not there."""
        seeds, names = (seeds[:1], QUICK) if quick else (seeds, tuple(STEPS))
        with tempfile.TemporaryDirectory(prefix="mmcache-gateways-", ignore_cleanup_errors=True) as folder:
            made = contest(
                names, Path(folder), 120 if quick else 240, 8 if quick else 30, 12 if quick else 40, seeds, progress
            )
        self._contest = made
        lines = [f"{name} is not run: {why}" for name, why in made.missing.items()]
        lines += [f"{name} is not in the quick run" for name in STEPS if name not in names]
        lines += [f"{name} failed: {dict(of.failures)}" for name, of in made.found.items() if of.failures]
        return Result(self.name, quick, tuple(seeds), real(made), (*simulated(), *lines), tuple(rows(made)))

    def pages(self, result: Result) -> Mapping[str, str]:
        """What became of the requests of each family, by contender."""
        if self._contest is None:
            return {}
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["contender", "family", *OUTCOMES])
        for name, found in self._contest.found.items():
            for family in FAMILIES:
                writer.writerow([name, family, *(_of(found, family, outcome) for outcome in OUTCOMES)])
        return {"csv": out.getvalue()}

    def plot(self, result: Result, figure: Figure) -> None:
        """What became of all requests, and of each family's."""
        found = {row.id: row.ours or 0.0 for row in result.rows}
        names = [id.removesuffix("/right") for id in found if id.endswith("/right")]
        figure.set_size_inches(13, 0.34 * len(names) + 3.4)
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.5), sharey=True)
        begin = np.zeros(len(names))
        for outcome in ("right", "wrong", "leaks", "frozen"):
            width = np.array([found.get(f"{name}/{outcome}", 0.0) for name in names])
            left.barh(names, width, left=begin, color=COLOURS[outcome.removesuffix("s")], label=outcome)
            begin += width
        left.set_xlabel("answered by the cache, % of requests")
        left.legend(frameon=False, fontsize=8, loc="lower right")
        left.invert_yaxis()
        left.spines[["top", "right"]].set_visible(False)
        if self._contest is not None:
            _families(right, {name: self._contest.found.get(name, Found()) for name in names})
        figure.suptitle(f"{result.name}{' (quick)' if result.quick else ''}")


def _families(axes: object, found: Mapping[str, Found]) -> None:
    """A map: green where hits are right, red where they are wrong or leak, by family."""
    shares = np.zeros((len(found), len(FAMILIES)))
    for place, of in enumerate(found.values()):
        for number, family in enumerate(FAMILIES):
            total = sum(_of(of, family, outcome) for outcome in OUTCOMES)
            bad = _of(of, family, "wrong") + _of(of, family, "leak")
            shares[place, number] = (_of(of, family, "right") if not bad else -bad) / max(1, total)
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    axes.imshow(shares, cmap="RdYlGn", vmin=-1, vmax=1, aspect="auto")
    axes.set_xticks(range(len(FAMILIES)), list(FAMILIES), rotation=60, ha="right", fontsize=7)
    axes.set_title("green: share of right hits; red: of wrong ones and leaks", fontsize=8)


def _of(found: Found, family: str, outcome: Outcome) -> int:
    return sum(seen[family, outcome] for seen in found.outcomes)


def rows(made: Contest) -> list[Row]:
    """The table's rows."""
    found = [
        Row.of("perfect/right", "requests asked before by the same tenant in any form", "%", "higher", made.perfect)
    ]
    found.append(
        Row.of("upstream/model", "the upstream's time for a request it has not seen", "ms", "lower", made.model_ms)
    )
    for name, of in made.found.items():
        found += _rows(name, of)
    found += [Row(f"{name}/right", "not run", "%", "higher", None) for name in made.missing if name not in made.found]
    return found + _against(made)


def _rows(name: str, of: Found) -> list[Row]:
    none = 0.0 if name in OURS else None
    percent = {outcome: of.share(outcome) for outcome in OUTCOMES}
    found = [Row.of(f"{name}/right", "answered by the cache, rightly", "%", "higher", percent["right"])]
    if name != "none":
        found += [
            Row.of(f"{name}/wrong", "answered by the cache, wrongly", "%", "lower", percent["wrong"], target=none),
            Row.of(
                f"{name}/leaks", "answered with another tenant's answer", "%", "lower", percent["leak"], target=none
            ),
            Row.of(f"{name}/frozen", "sampling without a seed, answered by the cache", "%", "lower", percent["frozen"]),
        ]
    for outcome, what in (("changed", "misses whose answer the contender changed"), ("failed", "exceptions")):
        if any(percent[outcome]):  # type: ignore[index]
            found.append(Row.of(f"{name}/{outcome}", what, "%", "lower", percent[outcome]))  # type: ignore[index]
    asked = [100 - sum(percent[outcome][place] for outcome in ("right", "wrong", "leak", "frozen"))
             for place in range(len(of.outcomes))]  # fmt: skip
    found.append(Row.of(f"{name}/upstream", "requests that reached the upstream (or failed)", "%", "lower", asked))
    if hits := [ms for ms in of.hit_ms if ms]:
        for share in (50, 99):
            times = [float(np.percentile(ms, share)) for ms in hits]
            found.append(Row.of(f"{name}/hit-p{share}", f"a hit, P{share}", "ms", "lower", times))
    if name != "none":
        pairs = of.added_ms if len(of.added_ms) >= LEAST_PAIRS else None
        what = "added to a miss" if pairs else "added to a miss: too few misses, it answered what it had not seen"
        id = f"{name}/added"
        found.append(Row.of(id, what, "ms", "lower", pairs) if pairs else Row(id, what, "ms", "lower", None))
        if of.restarted:
            kept = 100 * float(np.mean(of.restarted))
            target = 100.0 if name in OURS else None
            found.append(
                Row.of(f"{name}/restart", "right hits that are so after a restart", "%", "higher", kept, target=target)
            )
        steps = "steps to install and set up: commands and lines"
        found.append(Row.of(f"{name}/steps", steps, "steps", "lower", len(STEPS[name])))
    return found


def _against(made: Contest) -> list[Row]:
    """Right hits of the proxy over the best peer's: of those that were never wrong, with and without leaks."""
    found = []
    for id, bad in (("safe", ("wrong", "leak")), ("never-wrong", ("wrong",))):
        peers = {
            name: of.share("right") for name, of in made.found.items()
            if name not in (*OURS, "none") and not any(any(of.share(outcome)) for outcome in bad)  # type: ignore[arg-type]
        }  # fmt: skip
        ours = made.found.get("serve")
        if ours is None or not peers:
            continue
        best = max(peers, key=lambda name: float(np.mean(peers[name])))
        ratios = [one / other for one, other in zip(ours.share("right"), peers[best], strict=True) if other]
        also = "" if "leak" in bad else ", leaks left out"
        what = f"serve's right hits over those of {best}, the best peer that is never wrong{also or ' and never leaks'}"
        if ratios:
            found.append(Row.of(f"serve/over-{id}", what, "x", "higher", ratios, target=1.0))
    return found


def real(made: Contest) -> tuple[str, ...]:
    """What really ran."""
    return (
        "the upstream: a process that speaks OpenAI's chat interface over the repository's own vision-language model "
        "(DINOv2 and a small decoder); easy-vqa 1.0 (MIT), pictures and questions of its test set",
        "`mmcache serve` as a process, by its command line; `MMCache` behind LangChain's `set_llm_cache`",
        "GPTCache 0.1.44 (`adapter.api`), LiteLLM 1.110 (`completion`, its local and Redis caches, the latter in a "
        "real Valkey), RedisVL 0.28 (`SemanticCache`, in Valkey with the RediSearch module), langchain-openai 1.7 "
        "with langchain-core's InMemoryCache and langchain-community's SQLiteCache: their own code, each in a process "
        "of its own",
        "every request goes to every contender in the same order; the upstream counts what reaches it",
        *(f"steps of {name}: {' · '.join(steps)}" for name, steps in STEPS.items() if steps and name in made.found),
    )  # fmt: skip


def simulated() -> tuple[str, ...]:
    """What was imitated."""
    return (
        f"who asks what: popularity is Zipf {EXPONENT}; {100 * REPEATS:.0f} % are the plain request, the rest is "
        f"divided evenly among {len(FAMILIES) - 1} families that differ in one thing (JPEG at quality {QUALITY}); two "
        "API keys",
        "the upstream turns its model's answers into sentences, French, capitals, JSON and tool calls by rules; at "
        "temperatures above 0 it disturbs what the greedy model sees by noise from the seed",
        "the upstream remembers what its model said, so that `hit` and `added` time the cache and not the model; "
        "`upstream/model` is without that memory",
        f"requests of the family `{CHANCE}` have no truth: they are right, or wrong, in nobody's count",
    )
