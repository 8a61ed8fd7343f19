"""What `mmcache top` draws: lines that fit any terminal from 80 by 24, and smaller ones cut off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import TYPE_CHECKING

from mmcache.cli.output import size
from mmcache.cli.top_feed import Line, Snapshot, Tier
from mmcache.dashboard.telling import ago, clock, count, named, percent

if TYPE_CHECKING:
    from rich.text import Text

AXES = ("modality", "route", "tenant", "region", "strategy", "service", "instance")
KEYS = "q quit  b next axis  r reasons over time  p pause"
_NAME = 24
"""Columns of a name."""
_SHARE = 8
_TALL = 40
_SPARKS, _PLAIN_SPARKS = "▁▂▃▄▅▆▇█", "_.:-=+*#"


@dataclass
class Look:
    """What is shown, and how."""

    address: str
    wide: bool = False
    """Reasons over time, instead of all parts."""
    paused: bool = False
    trouble: str = ""
    """Why there is nothing new."""
    plain: bool = False
    """Only ASCII."""
    lines: int | None = None
    """Of one cause; None = all."""
    snapshot: Snapshot | None = field(default=None, repr=False)


def draw(look: Look, width: int, height: int) -> list[Text]:
    """At most `height` lines of at most `width` cells."""
    from rich.text import Text

    snapshot = look.snapshot
    look.lines = None if height >= _TALL else 2
    lines = [_head(look), *([_said(f"! {named(look.trouble, 400)}", "bold red")] if look.trouble else [])]
    if snapshot is not None:
        room = height - len(lines) - 1
        parts = [_reasons_over_time(look, snapshot, width)] if look.wide else _parts(look, snapshot, width)
        lines += [line for part in _fitted(parts, room) for line in part]
    elif not look.trouble:
        lines.append(Text("waiting for the dashboard…"))
    lines = [*lines[: height - 1], *[Text("")] * (height - 1 - len(lines)), _said(KEYS, "dim")]
    for line in lines:
        line.no_wrap = True
        line.truncate(width, overflow="crop" if look.plain else "ellipsis")
    return lines


def printed(look: Look, width: int) -> list[Text]:
    """All there is, once."""
    snapshot = look.snapshot
    parts = [] if snapshot is None else [*_parts(look, snapshot, width)]
    lines = [_head(look), *(line for part in parts for line in part)]
    for line in lines:
        line.truncate(width, overflow="crop" if look.plain else "ellipsis")
    return lines


def _said(words: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(words, style=style)


def _head(look: Look) -> Text:
    line = _said("mmcache top", "bold")
    snapshot = look.snapshot
    if snapshot is not None:
        line.append(f"  {clock(snapshot.until)}, last {snapshot.minutes:g} min, by {snapshot.by}", style="")
    if look.paused:
        line.append("  paused", style="bold yellow")
    line.append(f"  {named(look.address)}", style="dim")
    return line


Part = list["Text"]


def _fitted(parts: Sequence[Part], room: int) -> list[Part]:
    """Every part's head and first line, then further lines to each in turn, to the causes two, until it is full."""
    kept = [min(len(part), 2) for part in parts]
    while sum(kept) > room and any(kept):
        last = max(at for at, number in enumerate(kept) if number)
        kept[last] = 0
    grown = True
    while grown and sum(kept) < room:
        grown = False
        for at, part in [*enumerate(parts), *enumerate(parts[:2])]:
            if 0 < kept[at] < len(part) and sum(kept) < room:
                kept[at] += 1
                grown = True
    return [part[:number] for part, number in zip(parts, kept, strict=True)]


def _parts(look: Look, snapshot: Snapshot, width: int) -> list[Part]:
    draws: tuple[Callable[[Look, Snapshot, int], Part], ...] = (_ratio, _causes, _reasons, _saved, _tiers, _keys)
    return [part for part in (one(look, snapshot, width) for one in draws) if part]


def _ratio(look: Look, snapshot: Snapshot, width: int) -> Part:
    whole = snapshot.whole.series[0] if snapshot.whole.series else Line("all", [], [], [])
    lines = [_curve(look, snapshot, "hit ratio", whole, width, "bold")]
    apart = [] if snapshot.apart is None else snapshot.apart.series
    lines += [_curve(look, snapshot, one.name or f"no {snapshot.by}", one, width) for one in apart]
    return lines


def _curve(look: Look, snapshot: Snapshot, name: str, one: Line, width: int, style: str = "") -> Text:
    hits, lookups = sum(one.hits), sum(one.hits) + sum(one.misses)
    seconds = max(1.0, 60 * snapshot.minutes)
    ratio = percent(hits / lookups) if lookups else "–"
    line = _said(f"{_column(name)} {ratio:>6} ", style)
    tail = f" {lookups / seconds:8.1f}/s"
    line.append(_spark(one.ratio, width - line.cell_len - len(tail), look.plain), style="green")
    line.append(tail, style="dim")
    return line


def _column(name: str, width: int = _NAME) -> str:
    from rich.cells import set_cell_size

    return set_cell_size(named(name, width), width)


def _spark(values: Sequence[float | None], width: int, plain: bool) -> str:
    """Shares 0…1 as a curve of `width` cells."""
    if not values or width < 1:
        return ""
    sparks = _PLAIN_SPARKS if plain else _SPARKS
    shown = []
    for place in range(width):
        start = place * len(values) // width
        end = max(start + 1, (place + 1) * len(values) // width)
        known = [min(1.0, max(0.0, value)) for value in values[start:end] if value is not None]
        mean = sum(known) / len(known) if known else None
        shown.append(" " if mean is None else sparks[min(7, int(mean * 8))])
    return "".join(shown)


def _bar(share: float, width: int, plain: bool) -> str:
    full = round(max(0.0, min(1.0, share)) * width)
    return ("#" if plain else "█") * full + ("." if plain else "░") * (width - full)


def _reasons(look: Look, snapshot: Snapshot, width: int) -> Part:
    if snapshot.reasons is None:
        return []
    sums = {name: sum(counts) for name, counts in snapshot.reasons.reasons.items()}
    whole = sum(sums.values())
    lines = [_said(f"misses  {count(whole)}", "bold")]
    for name, number in sorted(sums.items(), key=lambda pair: (-pair[1], pair[0])):
        if number > 0:
            bar = _bar(number / whole, max(10, width - 50), look.plain)
            lines.append(_said(f"{_column(name, 14)} {count(number):>12} {percent(number / whole):>6} {bar}"))
    return lines


def _reasons_over_time(look: Look, snapshot: Snapshot, width: int) -> Part:
    found = {} if snapshot.reasons is None else snapshot.reasons.reasons
    most = max((max(counts, default=0.0) for counts in found.values()), default=0.0)
    lines = [_said("misses by reason over time", "bold")]
    for name, counts in sorted(found.items(), key=lambda pair: (-sum(pair[1]), pair[0])):
        shares: list[float | None] = [number / most if most and number else None for number in counts]
        spark = _spark(shares, max(10, width - 30), look.plain)
        lines.append(_said(f"{_column(name, 14)} {count(sum(counts)):>12} {spark}"))
    return lines


def _saved(look: Look, snapshot: Snapshot, width: int) -> Part:
    if (saved := snapshot.saved) is None:
        return []
    cost = ""
    if saved.cost_avoided:
        cost = f", {saved.cost_avoided:.2f} {named(saved.currency or '', 8)} avoided"
    return [_said(f"saved  {ago(saved.total_seconds)} of compute, {size(round(saved.total_bytes))}{cost}", "bold")]


def _tiers(look: Look, snapshot: Snapshot, width: int) -> Part:
    tiers = [] if snapshot.tiers is None else snapshot.tiers.tiers
    lines = [_said("tiers", "bold")] if tiers else []
    return lines + [_said(_tier(look, tier, width)) for tier in sorted(tiers, key=lambda one: (one.tier, one.instance))]


def _tier(look: Look, tier: Tier, width: int) -> str:
    used = next((value for value in reversed(tier.used) if value is not None), 0.0)
    evicted = sum(value for value in tier.evictions if value is not None)
    held = size(round(used))
    if tier.limit:
        held = f"{_bar(used / tier.limit, max(6, width - 70), look.plain)} {held} of {size(round(tier.limit))}"
    return f"{_column(tier.tier, 8)} {_column(tier.instance, 20)} {held}, {count(evicted)} evicted"


def _keys(look: Look, snapshot: Snapshot, width: int) -> Part:
    keys = [] if snapshot.keys is None else snapshot.keys.keys
    lines = [_said("hottest keys", "bold")] if keys else []
    for one in keys:
        asked = one.hits + one.misses
        ratio = percent(one.hits / asked) if asked else "–"
        lines.append(
            _said(
                f"{_column(one.key, 16)} {count(asked):>10} {ratio:>6}  {named(one.tenant, 24)} {named(one.modality)}"
            )
        )
    return lines


def _causes(look: Look, snapshot: Snapshot, width: int) -> Part:
    from rich.text import Text

    if snapshot.causes is None:
        return []
    causes = snapshot.causes.causes
    if not causes:
        return [_said("why  nothing fell", "bold")]
    lines = [_said("why the hit ratio fell", "bold")]
    for one in causes:
        since = f"since {clock(one.since)}, " if one.since is not None else ""
        words = f"{since}{count(one.misses)} more misses: " if one.misses > 0 else ""
        told = wrap(words + named(one.text, 2000), max(20, width - _SHARE), max_lines=look.lines, placeholder=" …")
        for at, words in enumerate(told):
            line = Text(f"{percent(one.share) if not at else '':>{_SHARE - 1}} ", style="bold yellow")
            line.append(words, style="")
            lines.append(line)
    return lines
