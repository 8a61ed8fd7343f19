"""Rows about a fall: which windows are compared, what was counted in both, which signatures and keys were used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmcache.dashboard import causes
from mmcache.dashboard.asking import Question
from mmcache.dashboard.counting import Counts, View, counted
from mmcache.dashboard.dictionary import Facets
from mmcache.dashboard.dips import dip
from mmcache.dashboard.reading import fields_of, numbered
from mmcache.dashboard.rows import (
    AXES,
    CauseRows,
    ExampleRow,
    Group,
    KeyRow,
    SignatureRow,
    StepRow,
    Window,
)
from mmcache.dashboard.steps import Tally
from mmcache.dashboard.taken import LOOKUP

POINTS = 240
STEPS, KEYS, EXAMPLES = 60, 50, 400


def causes_of(view: View, asked: Question) -> dict[str, Any]:
    """Why the ratio fell in a window, or in a part of it."""
    rows = CauseReader(view, asked).rows()
    said = {}
    for name, window in (("baseline", rows.baseline), ("now", rows.now)):
        counts = [(group.hit, group.before if name == "baseline" else group.now) for group in rows.groups]
        hits, all_of_them = sum(count for hit, count in counts if hit), sum(count for _, count in counts)
        ratio = hits / all_of_them if all_of_them else None
        said[name] = {"from": window.start, "to": window.end, "ratio": ratio, "lookups": all_of_them}
    return {**said, "causes": [cause.to_dict() for cause in causes.find(rows)]}


class CauseReader:
    """Reads for one question."""

    def __init__(self, view: View, asked: Question) -> None:
        self._view = view
        window = Window(max(asked.window.start - asked.window.seconds, 0.0), asked.window.end)
        wide = Question(window, asked.filters, asked.keys)
        self._counts = counted(view, wide, POINTS, ("n", "weight", "square"))
        series = _series(self._counts)
        first = next((at for at, one in enumerate(series) if one.lookups), 0)
        series = series[first:]  # nothing was there to fall from
        baseline, now = dip(series, asked.window, self._counts.step)
        self._baseline, self._now = self._whole(baseline), self._whole(now)
        mask = asked.chosen(view.known)
        self._chosen = np.flatnonzero(mask).astype(np.uint32)
        self._missed = np.flatnonzero(mask & (view.known.facets.table()[: len(mask), 1] == 0)).astype(np.uint32)
        lookup = view.known.words["name"].find(LOOKUP) or 0
        self._some = "facet IN (SELECT facet FROM chosen)" if asked.filters else f"name = {lookup}"

    def rows(self) -> CauseRows:
        """All of it."""
        counts = self._counts
        before, now = self._slots(self._baseline), self._slots(self._now)
        both = before | now
        weight, square = counts.cells["weight"][both].sum(), counts.cells["square"][both].sum()
        self._view.cursor.register("chosen", {"facet": self._chosen})
        try:
            signatures, keys, examples = self._signatures(), self._keys(), self._examples()
        finally:
            self._view.cursor.unregister("chosen")
        return CauseRows(
            self._baseline, self._now, self._groups(before, now), self._steps(before, now), signatures, keys, examples,
            float(square / weight) if weight else 1.0,
        )  # fmt: skip

    def _whole(self, window: Window) -> Window:
        """At steps' edges, so that everything is counted over exactly it."""
        start, step = self._counts.start, self._counts.step
        first = start + round((window.start - start) / step) * step
        return Window(float(first), float(max(start + round((window.end - start) / step) * step, first + step)))

    def _slots(self, window: Window) -> NDArray[np.bool_]:
        starts = self._counts.start + self._counts.slot * self._counts.step
        found: NDArray[np.bool_] = (starts >= window.start) & (starts < window.end)
        return found

    def _groups(self, before: NDArray[np.bool_], now: NDArray[np.bool_]) -> list[Group]:
        counts = self._counts
        facets, place = np.unique(counts.facet, return_inverse=True)
        weight = counts.cells["weight"]
        old = np.bincount(place[before], weight[before], len(facets))
        new = np.bincount(place[now], weight[now], len(facets))
        both = before | now
        square = np.bincount(place[both], counts.cells["square"][both], len(facets))
        first = np.full(len(facets), np.inf)
        np.minimum.at(first, place[now], (counts.start + counts.slot * counts.step)[now])
        return [
            Group(
                **self._axes(int(facet)), before=float(a), now=float(b), first=float(c) if c < np.inf else 0.0,
                weight=float(d / (a + b)),
            )
            for facet, a, b, c, d in zip(facets, old, new, first, square, strict=True)
            if a or b
        ]  # fmt: skip

    def _axes(self, facet: int) -> dict[str, Any]:
        row = self._view.known.facets.rows[facet]
        words = self._view.known.words
        said: dict[str, Any] = {axis: words[axis].texts[word] for axis, word in zip(AXES, row[2:], strict=True)}
        return said | {"hit": bool(row[1])}

    def _steps(self, before: NDArray[np.bool_], now: NDArray[np.bool_]) -> list[StepRow]:
        counts, words = self._counts, self._view.known.words
        tenant, instance = counts.axis("tenant"), counts.axis("instance")
        reason = np.where(counts.axis("hit") == 1, 0, counts.axis("reason"))
        found = []
        for rows, window in ((before, self._baseline), (now, self._now)):
            slots = round(window.seconds / counts.step)
            chunk = -(-slots // STEPS)
            first = round((window.start - counts.start) / counts.step)
            at = (counts.slot[rows] - first) // chunk
            names = np.stack([at, tenant[rows], instance[rows], reason[rows]], 1)
            unique, place = np.unique(names, axis=0, return_inverse=True)
            sums = np.bincount(place.ravel(), counts.cells["weight"][rows], len(unique))
            found += [
                StepRow(
                    window.start + int(slot) * chunk * counts.step,
                    float(min(chunk, slots - int(slot) * chunk) * counts.step),
                    words["tenant"].texts[who], words["instance"].texts[where], words["reason"].texts[why],
                    float(count),
                )
                for (slot, who, where, why), count in zip(unique.tolist(), sums, strict=True)
            ]  # fmt: skip
        return found

    def _between(self) -> tuple[str, list[Any]]:
        """Spans of both windows; `now` tells which."""
        bounds = [self._baseline.start, self._baseline.end, self._now.start, self._now.end]
        where = f"((start_us >= $1 AND start_us < $2) OR (start_us >= $3 AND start_us < $4)) AND {self._some}"
        return where, [int(bound * 1e6) for bound in bounds]

    def _signatures(self) -> list[SignatureRow]:
        where, values = self._between()
        rows = self._view.cursor.execute(
            "SELECT facet, signature, start_us >= $3 AND start_us < $4 AS now, max(fields), sum(weight), min(start_us),"
            f" max(start_us) FROM spans WHERE {where} AND signature != 0 GROUP BY facet, signature, now",
            values,
        ).fetchall()
        found: dict[tuple[str, str, str, int], dict[str, Any]] = {}
        for facet, signature, now, fields, weight, first, last in rows:
            said = self._axes(facet)
            name = (said["service"], said["instance"], said["modality"], signature)
            told = found.setdefault(name, {"fields": 0, "first": first, "last": last})
            told["fields"] = max(told["fields"], fields)
            told["first"], told["last"] = min(told["first"], first), max(told["last"], last)
            place = ("" if now else "before_") + ("hits" if said["hit"] else "misses")
            told[place] = told.get(place, 0.0) + weight
            if now and said["reason"] == "signature":
                told["refused"] = told.get("refused", 0.0) + weight
        return [
            SignatureRow(
                service, instance, modality, f"{signature:016x}", fields_of(self._view, told["fields"]),
                told.get("before_hits", 0.0), told.get("before_misses", 0.0), told.get("hits", 0.0),
                told.get("misses", 0.0), told["first"] / 1e6, told["last"] / 1e6, told.get("refused", 0.0),
            )
            for (service, instance, modality, signature), told in sorted(found.items(), key=lambda one: one[1]["first"])
        ]  # fmt: skip

    def _keys(self) -> list[KeyRow]:
        """Different keys are counted by HyperLogLog, within a few percent."""
        table = self._view.known.facets.table()
        columns = [Facets.COLUMNS.index(axis) for axis in ("tenant", "route", "modality")]
        unique, place = np.unique(table[:, columns], axis=0, return_inverse=True)
        groups = {"id": np.arange(len(table), dtype=np.uint32), "who": place.ravel().astype(np.uint32)}
        where, values = self._between()
        self._view.cursor.register("groups", groups)
        try:
            rows = self._view.cursor.execute(
                "SELECT who, start_us >= $3 AND start_us < $4 AS now, sum(weight), approx_count_distinct(key)"
                f" FROM spans JOIN groups ON facet = groups.id WHERE {where} AND key != 0 GROUP BY who, now",
                values,
            ).fetchall()
        finally:
            self._view.cursor.unregister("groups")
        found: dict[int, list[float]] = {}
        for who, now, weight, keys in rows:
            told = found.setdefault(who, [0.0, 0, 0.0, 0])
            told[2 if now else 0], told[3 if now else 1] = weight, keys
        words = self._view.known.words
        axes = ("tenant", "route", "modality")
        most = sorted(found.items(), key=lambda one: -one[1][2])[:KEYS]
        return [
            KeyRow(
                **{axis: words[axis].texts[int(word)] for axis, word in zip(axes, unique[who], strict=True)},
                before_lookups=told[0], before_keys=int(told[1]), lookups=told[2], keys=int(told[3]),
            )
            for who, told in most
        ]  # fmt: skip

    def _examples(self) -> list[ExampleRow]:
        bounds = [int(self._now.start * 1e6), int(self._now.end * 1e6)]
        self._view.cursor.register("missed", {"facet": self._missed})
        try:
            some = self._view.cursor.execute(
                "SELECT min_by(rowid, start_us, 3), max_by(rowid, start_us, 2), count(*) AS n FROM spans"
                " WHERE start_us >= $1 AND start_us < $2 AND facet IN (SELECT facet FROM missed)"
                " GROUP BY facet, signature ORDER BY n DESC LIMIT $3",
                [*bounds, EXAMPLES // 4],
            ).fetchall()
        finally:
            self._view.cursor.unregister("missed")
        wanted = list({row for first, last, _ in some for row in (*first, *last)})[:EXAMPLES]
        return [
            ExampleRow(
                row.trace, row.span, row.start, row.service, row.instance, row.tenant, row.route, row.modality,
                row.region, row.reason, row.detail, row.signature,
            )
            for row in numbered(self._view, wanted, "start_us, span")
        ]  # fmt: skip


def _series(counts: Counts) -> list[Tally]:
    hit = counts.axis("hit") == 1
    columns = counts.by_slot("weight", hit), counts.by_slot("weight", ~hit), counts.by_slot("square")
    return [
        Tally(float(t), float(a), float(b), float(c))
        for t, a, b, c in zip(counts.times, *columns, strict=True)
    ]  # fmt: skip
