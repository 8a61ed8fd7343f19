"""A study in words: the sentences, tables and the configuration file that all its pages share."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mmcache.lab.advice.inquiry import Study

MIB = 1 << 20
_BAR = 24
"""Characters of a full bar."""


@dataclass(frozen=True)
class Grid:
    """A table in words."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def span(seconds: float) -> str:
    """A duration for people: `90 s`, `3.5 h`."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def size(count: float) -> str:
    """Bytes for people: `3.2 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def lived(ttl: float | str | None) -> str:
    """A lifetime."""
    return "for ever" if ttl is None else ttl if isinstance(ttl, str) else span(ttl)


def headline(study: Study) -> str:
    """The advice, in a sentence."""
    return (
        f'policy "{study.policy}" with {size(study.memory)} of memory, blocks that live {lived(study.ttl)}: '
        f"{study.best.hit_ratio:.1%} of requests are hits and {study.best.saved:.1%} of the compute is saved"
    )


def sentences(study: Study) -> list[str]:
    """What it comes to, what it was compared with, and what was assumed."""
    asked = f"{study.requests:,} requests for {study.blocks:,} blocks of {size(study.footprint)}"
    lines = [f"The log: {asked}{f', over {span(study.seconds)}' if study.timed else ''}."]
    day = study.a_day(study.saved_seconds)
    daily = f", {span(day)} a day" if day is not None else ""
    lines.append(
        f"Saved: {span(study.saved_seconds)} of {span(study.cost)} of compute{daily} (GPU time where the encoder runs "
        f"on a GPU), and {size(study.saved_bytes)} of features not computed again. Once warm (last 30 % of the log): "
        f"{study.best.held_out:.1%} of the compute."
    )
    lines.append(f"No cache of that size, even one that knows the future, saves more than {study.bound:.1%}.")
    if study.rate < 1:
        lines.append(f"Replayed were the requests for a sample of {study.rate:.1%} of the blocks; --exact replays all.")
    return [*lines, *(f"Note: {note}." for note in study.notes)]


def grids(study: Study) -> list[Grid]:
    """Policies, memory, lifetimes and tenants."""
    found = [_policies(study), _sizes(study)]
    if study.lifetimes:
        found.append(_lifetimes(study))
    if study.tenants:
        found.append(_tenants(study))
    return found


def _policies(study: Study) -> Grid:
    ranked = sorted(study.at, key=lambda name: -study.at[name].saved)
    rows = tuple(
        (
            f"{name} *" if name == study.policy else name,
            *_shares(study.at[name].saved, study.at[name].hit_ratio, study.at[name].byte_hit_ratio),
            span(study.at[name].saved * study.cost),
        )
        for name in ranked
    )
    columns = ("policy", "compute saved", "hits", "bytes hit", "time saved")
    return Grid(f"Policies, in {size(study.memory)}", columns, rows)


def _sizes(study: Study) -> Grid:
    rows, before = [], (0.0, 0)
    for point in study.curves[study.policy]:
        more, bytes_more = point.saved - before[0], point.memory - before[1]
        gain = max(0.0, more) * study.cost / (bytes_more / MIB) if bytes_more else 0.0
        before = point.saved, point.memory
        mark = " *" if point.memory == study.memory else ""
        bar = "█" * max(0, round(point.saved * _BAR))
        rows.append((f"{size(point.memory)}{mark}", *_shares(point.saved, point.hit_ratio), f"{gain:.3g} s", bar))
    columns = ("memory", "compute saved", "hits", "each MiB more saves", "")
    return Grid(f"Memory, with {study.policy}", columns, tuple(rows))


def _lifetimes(study: Study) -> Grid:
    rows = tuple(
        (
            f"{lived(point.ttl)} *" if point.ttl == study.ttl else lived(point.ttl),
            *_shares(point.saved, point.hit_ratio),
            span(point.mean_age),
            span(point.old_age),
        )
        for point in study.lifetimes
    )
    columns = ("lifetime", "compute saved", "hits", "mean age of a hit", "19 of 20 are younger than")
    return Grid(f"Lifetimes, with {study.policy} in {size(study.memory)}", columns, rows)


def _tenants(study: Study) -> Grid:
    rows = tuple(
        (
            one.name,
            *_shares(one.requests, one.bytes, one.hit_ratio, one.saved),
            one.service,
            "none" if one.quota is None else size(one.quota),
        )
        for one in study.tenants[:20]
    )
    columns = ("tenant", "of requests", "of bytes", "hits", "of what is saved", "class", "quota")
    return Grid("Tenants (who is critical, only you know)", columns, rows)


def _shares(*ratios: float) -> tuple[str, ...]:
    return tuple(f"{ratio:.1%}" for ratio in ratios)


def config(study: Study) -> str:
    """`mmcache.toml`: what `Cache.from_config` reads."""
    lines = [
        f"# Advised from {_comment(study.name)}, {study.requests} requests: saves {study.best.saved:.1%} of compute.",
        "[cache]",
        f'memory = "{math.ceil(study.memory / MIB)}MiB"',
        f"policy = {_quoted(study.policy)}",
    ]
    if study.ttl is not None:
        lines.append(f"ttl = {_quoted(study.ttl) if isinstance(study.ttl, str) else format(study.ttl, '.15g')}")
    for one in study.tenants:
        if one.service != "normal" or one.quota is not None:
            lines += ["", f"[tenants.{_quoted(one.name)}]", f'service = "{one.service}"']
            lines += [f'quota = "{math.ceil(one.quota / MIB)}MiB"'] if one.quota is not None else []
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A basic string of TOML, which is one of JSON but for DEL and lone surrogates."""
    plain = text.encode("utf-8", "replace").decode()
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def as_json(study: Study) -> dict[str, Any]:
    """All figures, by the names of `Study`, and the sums that follow from them."""
    found = asdict(study)
    curves: dict[str, Sequence[Any]] = found["curves"]
    return {
        **found,
        "curves": {name: list(points) for name, points in curves.items()},
        "saved_seconds": study.saved_seconds,
        "saved_seconds_a_day": study.a_day(study.saved_seconds),
        "saved_bytes": study.saved_bytes,
        "config": config(study),
    }
