"""Table `boundary`: many small blocks or few large ones that must be there together: where each policy breaks (C1–C3).

One memory holds features of patches and of scenes. The mixture is swept from patches only to scenes only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from mmcache import plugins
from mmcache.lab import contenders, policy_growth
from mmcache.lab.attended import Material, material
from mmcache.lab.scene_load import PATCHES, SCENES, Load, draw
from mmcache.lab.table import Progress, Result, Row, Table, percentile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Of the work asked for that is scenes'."""
QUICK_SHARES = (0.0, 0.5, 1.0)
LEARNED, QUICK_LEARNED = (0.5, 1.0), (0.5,)
MEMORY = 0.2
"""Of the bytes of what is popular at a time, patches and scenes."""
PUBLISHED = {"lru": (41.2, 68.5), contenders.LFU_TTL: (29.7, 89.1)}
OURS = "auto"
BEHIND = 5.0
"""Points of work saved behind the best, from which a policy is said to break."""
WITHIN = 1.0
"""Points: noise."""
MOST_GROWTH = 1.5
"""Of a request's time from 1000 to 100 000 blocks: what the processor's caches make of constant work, and noise."""

Sweep = dict[str, dict[float, list[dict[str, float]]]]
"""Policy → share → one finding a seed (see `Load.saved`), in per cent."""


class BoundaryTable(Table):
    """What each policy serves of patches, of scenes, and of mixtures."""

    name: ClassVar[str] = "boundary"
    title: ClassVar[str] = "Boundary: patches (many, small) against scenes (few, large, useful only whole), per policy"
    remark: ClassVar[str] = (
        "The published pairs (LRU 41.2 / 68.5 %, LFU+TTL 29.7 / 89.1 %) come with no definition: they are read here as "
        "the share of patch-level and of scene-level requests that were served, and stand beside ours for a stream "
        "that is made up, so only their order can be compared: LFU+TTL is ahead on scenes here too, but not behind on "
        "patches. A scene is served when all its tiles are held, in their current revision. `work` is the share of "
        "compute that served requests save. Where they break: `heat` and `heat-freshness` look back 1000 uses, fewer "
        "than the 1176 patches that fit into memory, so on patches they decide as LRU does; a longer window "
        "(`heat/10000`) mends that and costs scenes, which it remembers in revisions that are gone. `entropy-lfu` "
        "believes in entropies: where they are unrelated to use it keeps the wrong blocks, where they tell of it "
        "(`linked`) it still trails; and as it judges each tile by itself it never holds a scene whole. So does "
        "`auto`: first on patches, it keeps the best tiles of all scenes rather than some scenes, and misses its "
        "targets there. No policy is told which tiles belong together. The LSTM is nearer to the truth than the "
        "window's count and still chooses worse victims (`believed`); as it is believed only while it hits more, it "
        "is hardly ever used, and neither gains nor loses. Growth near 1 means that a policy's work does not depend "
        "on the number of blocks; `auto` takes a microsecond, of which the processor's caches make half again as much."
    )

    def __init__(self) -> None:
        self._sweep: Sweep = {}

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Replays made-up requests through every registered policy. Without torch there is no forecast."""
        made_of = material(1 if quick else 8, progress)
        limit = int(MEMORY * (PATCHES * made_of.patch_bytes + SCENES * made_of.tiles * made_of.tile_bytes))
        shares, blocks = (QUICK_SHARES, 8000) if quick else (SHARES, 40_000)
        names = contenders.names()
        sweep: Sweep = {name: {share: [] for share in shares} for name in names}
        self._sweep = sweep
        learned = list[Row]()
        for done, share in enumerate(shares):
            loads = {seed: draw(share, blocks, seed, made_of) for seed in seeds}
            for seed, load in loads.items():
                progress(f"{100 * share:.0f} % scenes", done * len(seeds) + seed, len(shares) * len(seeds))
                for name in names:
                    hits = contenders.contend(name, load, limit, seed)
                    sweep[name][share].append({one: 100 * part for one, part in load.saved(hits).items()})
            if share in (QUICK_LEARNED if quick else LEARNED):
                learned += _learned(share, loads, limit, [one["work"] for one in sweep["heat-freshness"][share]])
        rows = [*_ends(sweep), *_gaps(sweep), *learned, *_growth(quick)]
        return Result(self.name, quick, tuple(seeds), _real(made_of, names), _simulated(made_of, limit), tuple(rows))

    def plot(self, result: Result, figure: Figure) -> None:
        """Work saved, patches served and scenes served, by mixture."""
        if not self._sweep:
            super().plot(result, figure)
            return
        words = {"work": "work saved", "patch": "patches served", "scene": "scenes served"}
        figure.set_size_inches(12, 4.2)
        panels = figure.subplots(1, 3, sharey=True)
        for axes, (what, title) in zip(panels, words.items(), strict=True):
            for place, (name, shares) in enumerate(self._sweep.items()):
                line = [
                    (100 * share, percentile([one[what] for one in found], 0.5))
                    for share, found in shares.items()
                    if all(what in one for one in found)
                ]
                style = "--" if name == contenders.LFU_TTL else "-"
                axes.plot(*zip(*line, strict=True), style, color=f"C{place % 10}", marker="o", markersize=3, label=name)
            axes.set_title(title)
            axes.set_xlabel("% of the work asked for that is scenes'")
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("%")
        panels[2].legend(frameon=False, fontsize=7)


def _ends(sweep: Sweep) -> Iterator[Row]:
    """What is served at both ends and in the middle."""
    for share, where in ((0.0, "patches only"), (0.5, "half the work each"), (1.0, "scenes only")):
        for place, what in enumerate(("patch", "scene")):
            served = {name: [one[what] for one in shares[share] if what in one] for name, shares in sweep.items()}
            best = max((percentile(values, 0.5) for values in served.values() if values), default=0.0)
            for name, values in served.items():
                if not values:
                    continue
                published = PUBLISHED[name][place] if name in PUBLISHED and share in (0.0, 1.0) else None
                yield Row.of(
                    f"{100 * share:.0f}/{what}/{name}", f"{what} requests served, {where}", "%", "higher", values,
                    target=best - WITHIN if name == OURS and share in (0.0, 1.0) else None, published=published,
                )  # fmt: skip


def _gaps(sweep: Sweep) -> Iterator[Row]:
    """How far a policy is behind the best of its mixture, and in which mixtures it breaks."""
    shares = list(next(iter(sweep.values())))
    work = {
        name: [percentile([one["work"] for one in found[share]], 0.5) for share in shares]
        for name, found in sweep.items()
    }
    best = [max(column) for column in zip(*work.values(), strict=True)]
    for name, values in work.items():
        behind = [top - value for top, value in zip(best, values, strict=True)]
        broken = [f"{100 * share:.0f}" for share, gap in zip(shares, behind, strict=True) if gap > BEHIND]
        where = f"breaks (over {BEHIND:.0f} points) at {', '.join(broken)} % scenes" if broken else "breaks nowhere"
        yield Row.of(
            f"gap/{name}", f"work saved, behind the best of a mixture at most; {where}", "points", "lower", max(behind),
            target=WITHIN if name == OURS else None,
        )  # fmt: skip


def _learned(share: float, loads: dict[int, Load], limit: int, window: list[float]) -> Iterator[Row]:
    """The LSTM against the window that it stands in for."""
    where = f"{100 * share:.0f} % scenes"
    gains, believed, errors, trusted = list[float](), list[float](), list[float](), list[float]()
    if not contenders.learns():
        yield Row(
            f"lstm/gain/{100 * share:.0f}", f"work saved by a forecast, {where}; needs torch", "points", "higher", None
        )
        return
    for (seed, load), without in zip(loads.items(), window, strict=True):
        found = contenders.foreseen(load, limit, seed)
        gains.append(100 * load.saved(found.hits)["work"] - without)
        believed.append(100 * (found.report["forecast_hits"] - found.report["window_hits"]))
        errors.append(found.report["forecast_error"] / found.report["window_error"])
        trusted.append(100 * found.report["trusted"])
    yield Row.of(
        f"lstm/gain/{100 * share:.0f}", f"work saved by heat-freshness: LSTM less window, {where}", "points", "higher",
        gains, target=0.0,
    )  # fmt: skip
    yield Row.of(
        f"lstm/believed/{100 * share:.0f}", f"block hits if the LSTM were always believed, less the window's, {where}",
        "points", "higher", believed,
    )  # fmt: skip
    yield Row.of(
        f"lstm/error/{100 * share:.0f}", f"error of the LSTM's forecast, of the window's, at the end, {where}", "x",
        "lower", errors,
    )  # fmt: skip
    yield Row.of(
        f"lstm/trusted/{100 * share:.0f}", f"steps in which the LSTM was let stand in, {where}", "%", "higher",
        trusted,
    )  # fmt: skip


def _growth(quick: bool) -> Iterator[Row]:
    """Whether a request costs more when the policy knows 100 times as many blocks."""
    few, many = policy_growth.FEW, policy_growth.MANY // (10 if quick else 1)
    names = plugins.names("policies")
    times = policy_growth.seconds(names, (few, many), rounds=5 if quick else 25)
    for name in names:
        more, less = times[name, many], times[name, few]
        yield Row.of(
            f"time/{name}", f"processor time of a request to a policy that knows {many} blocks", "µs", "lower",
            [1e6 * one for one in more],
        )  # fmt: skip
        yield Row.of(
            f"growth/{name}", f"that time, of the time with {few} blocks", "x", "lower",
            [one / other for one, other in zip(more, less, strict=True)], target=MOST_GROWTH,
        )  # fmt: skip


def _real(made_of: Material, names: Sequence[str]) -> tuple[str, ...]:
    lines = [
        f"policies of this package as the cache uses them: {', '.join(names)}",
        f"sizes: 64 or 257 tokens of DINOv2 ViT-S/14 in FP16 ({made_of.patch_bytes} and {made_of.tile_bytes} B); "
        f"{made_of.tiles} tiles of 224 pixels in a 720p frame",
    ]
    if made_of.real:
        lines.append("entropies: class token over patch tokens of real frames (Big Buck Bunny)")
    return tuple(lines)


def _simulated(made_of: Material, limit: int) -> tuple[str, ...]:
    lines = [
        f"who asks for what and when: see lab/scene_load.py; {PATCHES} patches and {SCENES} scenes are popular at a "
        f"time, one memory of {limit / 1e6:.0f} MB ({100 * MEMORY:.0f} % of them)",
        "which block has which entropy: unrelated to its use, or (linked) lower for what is used more; each use "
        "repeats it with noise",
        f"LFU+TTL: uses since stored, with a lifetime of {contenders.TTL_SECONDS:.0f} s (the publication names none)",
        "the LSTM trains between two requests of the replay, not beside them",
    ]
    if not made_of.real:
        lines.append("entropies: drawn, for the packaged encoder or clip is not installed")
    if not contenders.learns():
        lines.append("no forecast: torch is not installed")
    return tuple(lines)
