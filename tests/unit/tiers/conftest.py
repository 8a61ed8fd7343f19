"""Fixtures of the tier tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.tiers.disk_folder import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path / "cache")
    yield made
    for tier in made.opened:
        tier.close()
