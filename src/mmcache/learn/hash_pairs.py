"""Paired features out of a Parquet file, and the part of them that is kept back to judge what was learned.

A row is one pair (or triple, …). Columns:

* every column of lists of numbers is a modality by its name (`image`, `text`, `audio`, …): all its lists are of one
  length; NULL where the row lacks it;
* `concept` (optional, any type): rows of one concept show the same thing. Without it, each row is its own concept;
* `category` (optional, any type): the wider kind, e.g. `animal`; NULL = unknown. It helps where near in kind is near;
* any other column is left out, and named.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcache.learn.hash_train import UNKNOWN, Paired
from mmcache.learn.parquet import opened
from mmcache.model.errors import InvalidInputError, SettingsError

CONCEPT, CATEGORY = "concept", "category"
_NUMBERS = (
    "FLOAT",
    "DOUBLE",
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "DECIMAL",
)


@dataclass(frozen=True)
class Read:
    """What a file held."""

    pairs: Paired
    rows: int
    left_out: tuple[str, ...]
    """Columns that are neither a modality nor a label, and those of a modality that no row has."""


def read(path: Path) -> Read:
    """The pairs in the Parquet file `path`.

    Raises `SettingsError` where it cannot be read or duckdb is missing, `InvalidInputError` for what it holds.
    """
    wanted = "--pairs is a Parquet file with a column of features a modality"
    with opened(path, "pairs", wanted) as (base, columns):
        return _read(base, path, columns)


def _read(base: Any, path: Path, columns: dict[str, str]) -> Read:
    modalities = [name for name, kind in columns.items() if _is_list(kind) and name not in (CONCEPT, CATEGORY)]
    if len(modalities) < 2:
        listed = ", ".join(f"{name} ({kind})" for name, kind in columns.items()) or "none"
        raise InvalidInputError(
            f"{path} needs a column of number lists for each of two modalities or more; its columns: {listed}"
        )
    (count,) = base.execute("SELECT count(*) FROM pairs").fetchone()
    labels = {name: _numbered(base, name) if name in columns else None for name in (CONCEPT, CATEGORY)}
    of_row = labels[CONCEPT]
    if of_row is None:
        of_row = np.arange(count)
    elif (of_row == UNKNOWN).any():
        row = int(np.argmax(of_row == UNKNOWN))
        raise InvalidInputError(f"row {row} of {path} has no concept: fill the column, or leave it out altogether")
    rows, concept = {}, {}
    for modality in modalities:
        values, present = _features(base, path, modality)
        if len(values):
            rows[modality], concept[modality] = values, of_row[present]
    category = np.full(int(of_row.max(initial=-1)) + 1, UNKNOWN)
    if labels[CATEGORY] is not None:
        category[of_row] = labels[CATEGORY]
    known = {CONCEPT, CATEGORY, *rows}
    return Read(Paired(rows, concept, category), int(count), tuple(name for name in columns if name not in known))


def _is_list(kind: str) -> bool:
    element, mark, _ = kind.partition("[")
    return bool(mark) and kind.count("[") == 1 and element.partition("(")[0] in _NUMBERS


def _quoted(column: str) -> str:
    doubled = column.replace('"', '""')
    return f'"{doubled}"'


def _numbered(base: Any, column: str) -> npt.NDArray[np.int64]:
    """Labels of any type as numbers in order of appearance; NULL = −1."""
    labels = [label for (label,) in base.execute(f"SELECT {_quoted(column)}::VARCHAR FROM pairs").fetchall()]
    number = {label: i for i, label in enumerate(dict.fromkeys(label for label in labels if label is not None))}
    return np.array([UNKNOWN if label is None else number[label] for label in labels], np.int64)


def _features(base: Any, path: Path, modality: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Rows that have the modality [n, width], and which rows they are."""
    name = _quoted(modality)
    lengths = base.execute(f"SELECT coalesce(len({name}), -1)::BIGINT AS n FROM pairs").fetchnumpy()["n"]
    present = np.flatnonzero(lengths >= 0)
    if not len(present):
        return np.empty((0, 0), np.float32), present
    widths = np.unique(lengths[present])
    if len(widths) > 1 or 0 in widths:
        row = int(present[np.argmax(lengths[present] != lengths[present[0]])]) if 0 not in widths else None
        where = f"row {row} differs from the first" if row is not None else "some lists are empty; write NULL instead"
        raise InvalidInputError(f"the lists of {modality} in {path} must be of one length: {where}")
    flat = base.execute(f"SELECT unnest({name})::FLOAT AS v FROM pairs WHERE {name} IS NOT NULL").fetchnumpy()["v"]
    values = np.ma.filled(np.ma.asarray(flat, np.float32), np.nan).reshape(len(present), -1)
    if len(bad := np.flatnonzero(~np.isfinite(values).all(axis=1))):
        raise InvalidInputError(f"row {int(present[bad[0]])} of {path} has {modality} features that are not finite")
    return np.ascontiguousarray(values, np.float32), present


def kept_back(pairs: Paired, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """bool [concepts]: those that are not trained on, a random `share` of those that two modalities show."""
    if not 0.0 < share < 1.0:
        raise SettingsError(f"the share kept back lies between 0 and 1, not {share}")
    shown = np.zeros(len(pairs.category), np.int64)
    for of in pairs.concept.values():
        shown[np.unique(of)] += 1
    paired = np.flatnonzero(shown > 1)
    count = max(1, round(share * len(paired)))
    test = np.zeros(len(pairs.category), bool)
    test[np.random.default_rng(seed).permutation(paired)[:count]] = True
    return test
