"""A history of uses out of a Parquet file.

A row is one use. Columns:

* `key` (any type): what was used;
* `time`: when: a timestamp, or Unix seconds;
* `text` (optional): the key's text embedding, a list of numbers of one length; NULL where it has none;
* `image` (optional): its 64-bit image hash: an integer, or 16 hex digits; NULL where it has none.

What a key is about is what its first row with it says. Any other column is left out.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import numpy as np

from mmcache.learn.lifetime_history import Uses
from mmcache.learn.parquet import opened
from mmcache.lifespan.inputs import Floats, signs, unit
from mmcache.lifespan.model import MOST_WIDTH
from mmcache.model.errors import InvalidInputError

MOST_USES = 50_000_000
MOST_KEYS = 2_000_000
MOST_NUMBERS = 100_000_000
"""Of all text embeddings: 400 MB."""
_NUMBERS = {"FLOAT", "DOUBLE", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
_NUMBERS |= {"DECIMAL", "UBIGINT", "HUGEINT"}


def read(path: Path) -> Uses:
    """The uses in the Parquet file `path`, in order of time.

    Raises `SettingsError` where it cannot be read or duckdb is missing, `InvalidInputError` for what it holds.
    """
    wanted = "--history is a Parquet file with the columns key and time, a row a use"
    with opened(path, "uses", wanted) as (base, columns):
        return _read(base, path, columns)


def _read(base: Any, path: Path, columns: dict[str, str]) -> Uses:
    if missing := [name for name in ("key", "time") if name not in columns]:
        raise InvalidInputError(
            f"{path} has no column {missing[0]}; a row is one use: key, time, and maybe text, image"
        )
    (rows, nulls) = base.execute(
        'SELECT count(*), count(*) FILTER (key IS NULL OR "time" IS NULL) FROM uses'
    ).fetchone()
    if nulls or not 0 < rows <= MOST_USES:
        raise InvalidInputError(
            f"{path} has {rows} uses, {nulls} of them without key or time; 1 to {MOST_USES} are read"
        )
    base.execute(
        "CREATE TEMP TABLE names AS SELECT key, row_number() OVER (ORDER BY key::VARCHAR) - 1 AS n "
        "FROM (SELECT DISTINCT key FROM uses)"
    )
    (keys,) = base.execute("SELECT count(*) FROM names").fetchone()
    if keys > MOST_KEYS:
        raise InvalidInputError(f"{path} has {keys} keys, more than {MOST_KEYS}: give a sample of the keys, whole")
    dated = columns["time"].startswith(("TIMESTAMP", "DATE"))
    if not dated and columns["time"].partition("(")[0] not in _NUMBERS:
        raise InvalidInputError(f"time in {path} is a timestamp, or Unix seconds, not {columns['time']}")
    clock = 'epoch("time")' if dated else '"time"::DOUBLE'
    found = base.execute(
        f"SELECT n, {clock} AS moment FROM uses JOIN names USING (key) ORDER BY moment, file_row_number"
    ).fetchnumpy()
    return Uses(
        np.asarray(found["n"], np.int64), np.asarray(np.ma.filled(found["moment"], np.nan), np.float64),
        _texts(base, path, columns, keys), _images(base, path, columns, keys),
    )  # fmt: skip


def _first(column: str) -> str:
    return (
        f"SELECT n, arg_min({column}, file_row_number) AS v FROM uses JOIN names USING (key) "
        f"WHERE {column} IS NOT NULL GROUP BY n ORDER BY n"
    )


def _texts(base: Any, path: Path, columns: dict[str, str], keys: int) -> Floats:
    if "text" not in columns or base.execute("SELECT count(text) FROM uses").fetchone() == (0,):
        return np.zeros((keys, 1), np.float32)
    element, mark, _ = columns["text"].partition("[")
    if not mark or columns["text"].count("[") != 1 or element.partition("(")[0] not in _NUMBERS:
        raise InvalidInputError(f"text in {path} is a list of numbers, not {columns['text']}")
    base.execute(f"CREATE TEMP TABLE texts AS {_first('text')}")
    lengths = base.execute("SELECT DISTINCT len(v) FROM texts").fetchall()
    width = lengths[0][0]
    if len(lengths) > 1 or not 0 < width <= MOST_WIDTH:
        raise InvalidInputError(f"the lists of text in {path} must be of one length, 1 to {MOST_WIDTH}")
    if keys * width > MOST_NUMBERS:
        raise InvalidInputError(
            f"{keys} keys with {width} numbers of text each in {path} are more than {MOST_NUMBERS} numbers: give a "
            "sample of the keys, whole, or leave text out"
        )
    place = base.execute("SELECT n FROM texts ORDER BY n").fetchnumpy()["n"]
    flat = base.execute("SELECT unnest(v)::FLOAT AS v FROM (SELECT v FROM texts ORDER BY n)").fetchnumpy()["v"]
    out = np.zeros((keys, width), np.float32)
    out[place] = unit(np.ma.filled(np.ma.asarray(flat, np.float32), np.nan).reshape(-1, width))
    return out


def _images(base: Any, path: Path, columns: dict[str, str], keys: int) -> Floats:
    out = np.zeros((keys, 64), np.float32)
    if "image" not in columns:
        return out
    codes = [(n, _code(value, path)) for n, value in base.execute(_first("image")).fetchall()]
    if codes:
        out[[n for n, _ in codes]] = signs(np.array([code for _, code in codes], np.uint64))
    return out


def _code(value: Any, path: Path) -> int:
    try:
        code = int(value, 16) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"image in {path} is a 64-bit hash: an integer or 16 hex digits, not {value!r}"
        ) from error
    if not -(1 << 63) <= code < 1 << 64:
        raise InvalidInputError(f"image in {path} is a hash of 64 bits; {value!r} has more")
    return code % (1 << 64)
