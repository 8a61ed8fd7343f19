"""Table `prefetch`: what bringing blocks before they are asked for is worth, and what it costs (D4, D5).

All arms of a stream see the same visitors at the same times. Time is virtual: see `prefetch_world`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from mmcache.lab.prefetch_arms import (
    ARMS,
    BY_PROBABILITY,
    FORESEEN,
    MARKOV,
    MISLED,
    NONE,
    OURS,
    POPULARITY,
    UNSTOPPABLE,
    WRONG,
    WRONG_SHARE,
    Arm,
)
from mmcache.lab.prefetch_world import HIT_SECONDS, LEARNS, Outcome
from mmcache.lab.table import Progress, Result, Row, Table, percentile
from mmcache.lab.traces.sessions import KV_BYTES, PREFILL_SECONDS, SCALE, Shop, Views, conversations, noise, shop
from mmcache.model.errors import AssetError
from mmcache.settings import traces_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEMORY = 10.0
"""Per cent of all blocks."""
CURVE = (5.0, 10.0, 20.0)
LARGE = Shop(categories=40)
"""Four times as many products: most of them are looked at once or never."""
PUBLISHED_HIT = {"none": 68.2, "behaviour": 89.7}
PUBLISHED_PAINT = {"none": 1240.0, "behaviour": 712.0}
PUBLISHED_USE = 73.4
SHOP_ARMS = (NONE, OURS, BY_PROBABILITY, MARKOV, POPULARITY, WRONG, MISLED, UNSTOPPABLE, FORESEEN)
BESIDE = (NONE, OURS)

Outcomes = Mapping[str, Sequence[Outcome]]
"""By arm, one a seed."""


class PrefetchTable(Table):
    """Hit rate, first paint, use and cost of prefetching."""

    name: ClassVar[str] = "prefetch"
    title: ClassVar[str] = "Prefetching by behaviour: what visitors look for next is there before they ask"
    remark: ClassVar[str] = (
        "The published visitors are not public; these are generated. What they are like was changed after first "
        "looks, where prefetching gained less: from 1600 products (now `large`) to 400, as most had never been "
        "looked at before and there was nothing to learn from; from two views a second to one, from memory for 5 "
        "% of all blocks to 10 %, where about as much is hit without prefetching as is published, and from a "
        "quarter of the views for learning to a third. The prefetcher's defaults (how far it looks back, how "
        "likely and how many blocks must be) were chosen on the shop of seed 0, so that seed flatters them. "
        "`wrong` was first what `misled` is, and the random stream was first judged by the time it was paused. "
        "`foreseen` knows each visitor's next page beforehand and works with the same encoder, budget and memory: "
        "more than that cannot be won here by anybody, and the published hit rate is about that bound. From "
        "visits alone one knows only how others went on, and here about half of those who see a product open its "
        "gallery, and no product of a category is chosen by one in five. So about half of what is brought is "
        "used, where 73.4 % is published; the rest is the extra load. P95 of first paint is 780 ms here without "
        "prefetching, so only its change is held to the published one. The slowest twentieth of pages are mostly "
        "a category's whose pictures left memory; prefetching does not make those fewer, so P95 moves less than "
        "the mean. A chain of order 1 sees only what follows the last block of a page, mostly the next block of "
        "that page. Edges that lead astray (`wrong`) cost more than their share: where a right block is often "
        "there already, a wrong one hardly ever is, so all wrong ones are brought. They are unlearned within some "
        "visits of their source; a graph that learns them wrong for ever (`misled`) never does: it costs nearly "
        "all of the gain, and prefetching pauses now and then. On `noise` hardly anything is likely enough to be "
        "tried at all. Conversations gain nothing, by their nature: the next turn needs what this turn has just "
        "used, which is there while one looks ahead, and blocks that did not exist before; it leaves memory in "
        "the minutes between two turns, and nothing says when the next one comes. With an encoder that cannot "
        "stop within a block (`unstoppable`), whoever comes waits for the rest of it."
    )
    default_seeds: ClassVar[tuple[int, ...]] = (0, 1, 2)

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Conversations in `$MMCACHE_TRACES`, where they are. Raises `AssetError` for a damaged trace."""
        seeds = seeds[:1] if quick else seeds
        views, requests = (1200, 500) if quick else (4500, 2500)
        arms = (NONE, OURS, MARKOV, WRONG) if quick else SHOP_ARMS
        streams = [shop(seed, views) for seed in seeds]
        done, total = 0, len(seeds) * (len(arms) + 4) + 2

        def run(arm: Arm, streams: Sequence[Views], percent: float, learns: float = LEARNS) -> list[Outcome]:
            nonlocal done
            found = []
            for seed, one in zip(seeds, streams, strict=False):
                found.append(arm.run(one, percent, seed, learns))
                done += 1
                progress(f"{one.name}, {arm.name}", min(done, total), total)
            return found

        found = {arm.name: run(arm, streams, MEMORY) for arm in arms}
        rows = _shop_rows(found)
        for percent in () if quick else CURVE:
            curve = found if percent == MEMORY else {arm.name: run(arm, streams[:2], percent) for arm in BESIDE}
            rows += _curve_rows(percent, curve)
        if not quick:
            large = [shop(seed, views, LARGE) for seed in seeds[:2]]
            rows += _beside("large", "large shop", {arm.name: run(arm, large, MEMORY) for arm in BESIDE})
        rows += _noise_rows({arm.name: run(arm, [noise(s, views) for s in seeds], MEMORY, 0.0) for arm in BESIDE})
        real = [
            "the cache, its LRU policy, the encoder's wrapper, and the prefetcher with its graph, controller, budget "
            "and judgement are the product's own; rivals have their graph in its place, and all else alike",
            "what a text or a picture weighs and costs: measured on packaged encoders (`bench-encoder_costs`)",
        ]
        simulated = [
            f"time: one encoder, first come first served; speculative work runs while nobody waits; a block that is "
            f"there takes {HIT_SECONDS * 1e3:g} ms",
            f"shops and their visitors are generated ({views} views a seed; pages of categories, products and "
            f"galleries); blocks and memory are kept at 1/{SCALE} of their weight",
            f"the first {LEARNS:.0%} of the views fill the cache and teach, and are in no figure (`noise`: all are)",
        ]
        try:
            talk = [conversations(traces_folder(), requests)]
        except AssetError as error:
            if "MMCACHE_TRACES" not in str(error):
                raise
            simulated.append("no conversations: the published Mooncake trace is not here (MMCACHE_TRACES)")
        else:
            rows += _beside("mooncake", "conversations", {arm.name: run(arm, talk, MEMORY) for arm in BESIDE})
            real.append(
                f"conversations: the first {requests} requests of the published Mooncake trace, their times and blocks"
            )
            simulated.append(
                "conversations: which request goes on with which session is inferred from shared prefixes of two "
                f"blocks or more; a block of 512 tokens takes {PREFILL_SECONDS * 1e3:g} ms and {KV_BYTES} bytes"
            )
        progress("done", total, total)
        return Result(self.name, quick, tuple(seeds), tuple(real), tuple(simulated), tuple(rows))

    def plot(self, result: Result, figure: Figure) -> None:
        """Hit rate by memory; first paint and extra load by arm."""
        ours = {row.id: row.ours for row in result.rows}
        figure.set_size_inches(9, 3.4)
        left, middle, right = figure.subplots(1, 3)
        colours = {"none": "#8793a6", "behaviour": "#2f7d5b"}
        for arm in BESIDE:
            curve = [(p, ours.get(f"memory-{p:g}/hit/{arm.name}")) for p in CURVE]
            points = [(percent, hit) for percent, hit in curve if hit is not None]
            if points:
                left.plot(*zip(*points, strict=True), marker="o", color=colours[arm.name], label=arm.words)
            left.axhline(PUBLISHED_HIT[arm.name], ls=":", color=colours[arm.name], label=f"published, {arm.name}")
        left.set_xlabel("memory, % of all blocks")
        left.set_ylabel("% of lookups hit")
        left.legend(frameon=False, fontsize=6)
        names = [arm.name for arm in ARMS if f"shop/paint/{arm.name}" in ours]
        for axes, what, label in ((middle, "paint", "P95 first paint, ms"), (right, "extra", "extra encoder time, %")):
            shown = [name for name in names if f"shop/{what}/{name}" in ours]
            axes.barh(shown, [ours[f"shop/{what}/{name}"] or 0.0 for name in shown],
                      color=[colours.get(name, "#c9a227") for name in shown])  # fmt: skip
            axes.invert_yaxis()
            axes.set_xlabel(label)
            axes.tick_params(axis="y", labelsize=7)
        for axes in (left, middle, right):
            axes.spines[["top", "right"]].set_visible(False)
        figure.suptitle(f"{result.name}{' (quick)' if result.quick else ''}")


def _hit(one: Outcome) -> float:
    return 100 * one.hit_rate


def _paint(one: Outcome) -> float:
    return 1e3 * percentile(one.paints, 0.95)


def _extra(one: Outcome, without: Outcome) -> float:
    """Encoder seconds that prefetching added to those without, %: what it spent less what it saved."""
    return 100 * ((one.busy + one.speculated) / without.busy - 1)


def _extra_blocks(one: Outcome, without: Outcome) -> float:
    return 100 * ((one.computed + one.prefetched) / without.computed - 1)


def _row(
    id: str, words: str, unit: str, values: Sequence[float], *, higher: bool = False,
    target: float | None = None, published: float | None = None,
) -> Row:  # fmt: skip
    return Row.of(id, words, unit, "higher" if higher else "lower", values, target=target, published=published)


def _shop_rows(found: Outcomes) -> list[Row]:
    """Of all arms on the shops."""
    rows: list[Row] = []
    arms = [arm for arm in ARMS if arm.name in found]
    for arm in arms:
        hits, goal = [_hit(one) for one in found[arm.name]], PUBLISHED_HIT.get(arm.name)
        rows.append(
            _row(f"shop/hit/{arm.name}", f"lookups hit, {arm.words}", "%", hits, higher=True, published=goal,
                 target=goal if arm is OURS else None)
        )  # fmt: skip
    for arm in arms:
        paints, goal = [_paint(one) for one in found[arm.name]], PUBLISHED_PAINT.get(arm.name)
        rows.append(_row(f"shop/paint/{arm.name}", f"P95 first paint, {arm.words}", "ms", paints, published=goal))
    for arm in arms:
        means = [1e3 * sum(one.paints) / len(one.paints) for one in found[arm.name]]
        rows.append(_row(f"shop/mean/{arm.name}", f"mean first paint, {arm.words}", "ms", means))
    for arm in arms:
        if arm is not NONE:
            rows += _cost_rows("shop", arm, found)
    rows += _change_rows("shop", found, published=True)
    if WRONG.name in found:
        kept = [
            100 * (wrong.hit_rate - without.hit_rate) / max(1e-9, right.hit_rate - without.hit_rate)
            for wrong, right, without in zip(found[WRONG.name], found[OURS.name], found[NONE.name], strict=True)
        ]
        words = f"of the hits gained are still gained with {WRONG_SHARE:.0%} of the edges wrong"
        rows.append(_row("shop/wrong/kept", words, "%", kept, higher=True, target=100 * (1 - WRONG_SHARE)))
    return rows


def _change_rows(stream: str, found: Outcomes, *, published: bool = False) -> list[Row]:
    """Ours against none, pairwise on the same visitors."""
    pairs = list(zip(found[OURS.name], found[NONE.name], strict=True))
    gained = PUBLISHED_HIT["behaviour"] - PUBLISHED_HIT["none"] if published else None
    sooner = 100 * (PUBLISHED_PAINT["behaviour"] / PUBLISHED_PAINT["none"] - 1) if published else None
    return [
        _row(f"{stream}/gain/hit", "hits gained by prefetching", "points", [_hit(a) - _hit(b) for a, b in pairs],
             higher=True, target=gained, published=gained),
        _row(f"{stream}/gain/paint", "change of P95 first paint", "%", [100 * (_paint(a) / _paint(b) - 1)
             for a, b in pairs], target=sooner, published=sooner),
        _row(f"{stream}/gain/waits", "change of encoder seconds that real requests wait for", "%",
             [100 * (a.busy / b.busy - 1) for a, b in pairs]),
    ]  # fmt: skip


def _cost_rows(stream: str, arm: Arm, found: Outcomes, *, published: bool = True) -> list[Row]:
    """What was used, and what it cost."""
    outcomes, rows = found[arm.name], []
    some = [100 * one.use for one in outcomes if one.prefetched]
    if some:
        goal = PUBLISHED_USE if published and arm is OURS else None
        words = f"prefetched blocks that were asked for, {arm.words}"
        rows.append(_row(f"{stream}/use/{arm.name}", words, "%", some, higher=True, target=goal, published=goal))
    pairs = list(zip(outcomes, found[NONE.name], strict=True))
    rows += [
        _row(f"{stream}/extra/{arm.name}", f"extra encoder time, saved time deducted, {arm.words}", "%",
             [_extra(*pair) for pair in pairs]),
        _row(f"{stream}/extra-blocks/{arm.name}", f"extra blocks computed, saved ones deducted, {arm.words}", "%",
             [_extra_blocks(*pair) for pair in pairs]),
    ]  # fmt: skip
    if published:
        bytes_an_hour = [SCALE * one.prefetched_bytes / one.seconds * 3600 / 1e6 for one in outcomes]
        rows.append(_row(f"{stream}/bytes/{arm.name}", f"prefetched, {arm.words}", "MB/h", bytes_an_hour))
    return rows


def _curve_rows(percent: float, found: Outcomes) -> list[Row]:
    return [
        _row(f"memory-{percent:g}/hit/{arm.name}", f"lookups hit, memory for {percent:g} % of all blocks, {arm.words}",
             "%", [_hit(one) for one in found[arm.name]], higher=True)
        for arm in BESIDE
    ]  # fmt: skip


def _beside(stream: str, words: str, found: Outcomes) -> list[Row]:
    """Ours beside none, on another stream."""
    rows = []
    for arm in BESIDE:
        outcomes = found[arm.name]
        rows += [
            _row(f"{stream}/hit/{arm.name}", f"lookups hit, {words}, {arm.words}", "%", [_hit(o) for o in outcomes],
                 higher=True),
            _row(f"{stream}/paint/{arm.name}", f"P95 first paint, {words}, {arm.words}", "ms",
                 [_paint(o) for o in outcomes]),
        ]  # fmt: skip
    return [*rows, *_cost_rows(stream, OURS, found, published=False), *_change_rows(stream, found)]


def _noise_rows(found: Outcomes) -> list[Row]:
    """On a stream in which nothing can be foreseen: it must stop by itself."""
    pairs = list(zip(found[OURS.name], found[NONE.name], strict=True))
    rows = [
        _row(f"noise/hit/{arm.name}", f"lookups hit, random visitors, {arm.words}", "%",
             [_hit(one) for one in found[arm.name]], higher=True)
        for arm in BESIDE
    ]  # fmt: skip
    return [
        *rows,
        _row("noise/quiet", "minutes in which it began nothing, from the first visitor on", "%",
             [100 * one.quiet for one, _ in pairs], higher=True, target=90.0),
        _row("noise/paused", "of the time paused, as too little was used", "%",
             [100 * one.off / one.seconds for one, _ in pairs], higher=True),
        _row("noise/prefetched", "blocks prefetched all the same, of those computed", "%",
             [100 * one.prefetched / one.computed for one, _ in pairs], target=2.0),
        _row("noise/extra", "extra encoder time", "%", [_extra(*pair) for pair in pairs], target=2.0),
        _row("noise/paint", "change of P95 first paint", "%",
             [100 * (_paint(one) / _paint(without) - 1) for one, without in pairs], target=2.0),
    ]  # fmt: skip
