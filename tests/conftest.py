"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

for name in ("HAYSTACK_TELEMETRY_ENABLED", "LANGCHAIN_TRACING_V2"):  # frameworks that would send home
    os.environ[name] = "False"

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")

TRACES = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--traces",
        type=Path,
        default=Path(os.environ.get("MMCACHE_TRACES", TRACES)),
        help="folder of published request traces (also $MMCACHE_TRACES); tests that need one skip where it is not",
    )


@pytest.fixture
def traces(request: pytest.FixtureRequest) -> Path:
    """The folder of published request traces."""
    folder: Path = request.config.getoption("--traces")
    if not folder.is_dir():
        pytest.skip(f"no published traces in {folder}; pass --traces FOLDER")
    return folder
