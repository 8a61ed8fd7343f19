"""A user's Parquet file, opened for SQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmcache.model.errors import InvalidInputError, SettingsError


@contextmanager
def opened(path: Path, view: str, wanted: str) -> Iterator[tuple[Any, dict[str, str]]]:
    """Inside: a connection in which the file is `view`, its rows numbered as `file_row_number`, and the types of its
    columns by name. wanted: which file that would be, as an error says it.

    Raises `SettingsError` where there is none or duckdb is missing, `InvalidInputError` for what cannot be read, also
    inside.
    """
    try:
        import duckdb
    except ImportError as error:
        raise SettingsError("reading Parquet needs duckdb: pip install 'mmcache[learn]'") from error
    if not path.is_file():
        raise SettingsError(f"no file {path}; {wanted}")
    settings = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    with duckdb.connect(":memory:", config=settings) as base:
        try:
            base.read_parquet(_literal(path), file_row_number=True).create_view(view)
            columns = {name: str(kind) for name, kind, *_ in base.execute(f"DESCRIBE {view}").fetchall()}
            columns.pop("file_row_number", None)
            yield base, columns
        except duckdb.Error as error:
            raise InvalidInputError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from error


def _literal(path: Path) -> str:
    """duckdb takes patterns; a name that looks like one means itself here."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path))
