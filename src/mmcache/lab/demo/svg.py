"""Three plots as inline SVG. Colours are classes that the page defines for light and dark; hover text is `<title>`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from math import ceil, floor, log10

WIDTH = 720
LEFT, RIGHT, TOP = 132, 84, 8
BAR, GAP = 22, 16
CURVE_HEIGHT = 250
CURVE_LEFT, CURVE_BOTTOM = 56, 40


@dataclass(frozen=True)
class Part:
    """One segment of a bar."""

    value: float
    style: str
    """A CSS class of the page."""
    label: str


def _text(x: float, y: float, text: str, anchor: str = "start", style: str = "label") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(height: float, title: str, parts: Iterable[str]) -> str:
    body = "".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{body}</svg>'
    )


def bars(title: str, rows: Sequence[tuple[str, Sequence[Part], str]]) -> str:
    """Stacked horizontal bars: (name, parts, what stands at the end)."""
    longest = max((sum(part.value for part in parts) for _, parts, _ in rows), default=0.0) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / longest
    drawn = list[str]()
    for place, (name, parts, end) in enumerate(rows):
        y, x = TOP + place * (BAR + GAP), float(LEFT)
        drawn.append(_text(LEFT - 10, y + BAR * 0.7, name, "end"))
        for part in parts:
            width = part.value * scale
            if width > 0:
                drawn.append(
                    f'<rect class="{part.style}" x="{x:.1f}" y="{y}" width="{max(width - 2, 1):.1f}" height="{BAR}" '
                    f'rx="3"><title>{escape(part.label)}</title></rect>'
                )
            x += width
        drawn.append(_text(x + 8, y + BAR * 0.7, end, style="value"))
    return _svg(TOP + len(rows) * (BAR + GAP), title, drawn)


def stacked(title: str, drawings: Sequence[str]) -> str:
    """Several drawings of this module as one, one below the other."""
    placed, below = list[str](), 0
    for drawing in drawings:
        height = int(drawing.split('"', 2)[1].split()[3])  # of the viewBox, which comes first
        placed.append(drawing.replace("<svg", f'<svg y="{below}" width="{WIDTH}" height="{height}"', 1))
        below += height + GAP
    return _svg(below - GAP, title, placed)


@dataclass(frozen=True)
class Curve:
    """A polyline with its name."""

    name: str
    style: str
    points: Sequence[tuple[float, float]]


def distribution(title: str, series: Sequence[tuple[str, str, Sequence[float]]]) -> str:
    """Share of requests answered within a time; the time axis is logarithmic. Series: (name, class, seconds)."""
    least = min(min(values) for _, _, values in series)
    most = max(max(values) for _, _, values in series)
    low, high = floor(log10(least)), max(ceil(log10(most)), floor(log10(least)) + 1)
    curves = []
    for name, style, values in series:
        ordered = sorted(values)
        grid = [low + (high - low) * step / 240 for step in range(241)]
        points = [(place, bisect_right(ordered, 10**place) / len(ordered)) for place in grid]
        curves.append(Curve(name, style, points))
    ticks = [(float(power), _seconds(10.0**power)) for power in range(low, high + 1)]
    shares = [(share / 100, f"{share} %") for share in (0, 25, 50, 75, 100)]
    return _curves(title, curves, ticks, shares, "time to the features")


def running_total(title: str, series: Sequence[tuple[str, str, Sequence[float]]]) -> str:
    """Seconds spent so far over the number of requests. Series: (name, class, seconds of each request)."""
    curves = []
    for name, style, values in series:
        totals = [0.0, *accumulate(values)]
        step = max(1, len(values) // 300)
        points = [(float(place), totals[place]) for place in range(0, len(totals), step)]
        curves.append(Curve(name, style, [*points, (float(len(values)), totals[-1])]))
    count = max(len(values) for _, _, values in series)
    across = [(float(tick), f"{tick:,.0f}") for tick in _ticks(count)]
    up = [(tick, f"{tick:g} s") for tick in _ticks(max(curve.points[-1][1] for curve in curves))]
    return _curves(title, curves, across, up, "requests answered")


def _ticks(most: float) -> list[float]:
    """Four to seven round values from 0 to at least `most`."""
    step = 10 ** floor(log10(most / 4)) if most > 0 else 1.0
    step *= next(factor for factor in (1, 2, 5, 10) if most / (step * factor) <= 6)
    return [step * number for number in range(ceil(most / step) + 1)]


def _seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale * 0.999:
            return f"{value / scale:g} {unit}"
    return f"{value:g} s"


def _curves(
    title: str,
    curves: Sequence[Curve],
    across: Sequence[tuple[float, str]],
    up: Sequence[tuple[float, str]],
    caption: str,
) -> str:
    left, right = across[0][0], across[-1][0]
    low, high = up[0][0], up[-1][0]
    width, height = WIDTH - CURVE_LEFT - RIGHT - 30, CURVE_HEIGHT - TOP - CURVE_BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return CURVE_LEFT + (x - left) / (right - left) * width, TOP + (1 - (y - low) / (high - low)) * height

    drawn = list[str]()
    for y, name in up:
        _, level = place(left, y)
        drawn.append(f'<path class="grid" d="M{CURVE_LEFT} {level:.1f}h{width}"/>')
        drawn.append(_text(CURVE_LEFT - 8, level + 4, name, "end", "tick"))
    for x, name in across:
        drawn.append(_text(place(x, low)[0], TOP + height + 18, name, "middle", "tick"))
    drawn.append(_text(CURVE_LEFT + width / 2, CURVE_HEIGHT - 4, caption, "middle", "tick"))
    ends = list[float]()
    for curve in sorted(curves, key=lambda curve: curve.points[-1][1], reverse=True):
        dots = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in curve.points)
        drawn.append(
            f'<polyline class="line {curve.style}" points="{dots}"><title>{escape(curve.name)}</title></polyline>'
        )
        _, y = place(*curve.points[-1])
        y = max([y + 4, *(end + 15 for end in ends)])
        ends.append(y)
        x = place(*curve.points[-1])[0]
        drawn.append(f'<circle class="dot {curve.style}" cx="{x + 12:.1f}" cy="{y - 4:.1f}" r="4"/>')
        drawn.append(_text(x + 20, y, curve.name))
    return _svg(CURVE_HEIGHT, title, drawn)
