"""An application over a store in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.dashboard.store_world import a_store

from mmcache.dashboard.app import Dashboard


@pytest.fixture
def app() -> Iterator[Dashboard]:
    """Closed at the end."""
    with a_store(admin_token="admin-token", gpu_hour=2.5) as store:
        dashboard = Dashboard(store)
        yield dashboard
        dashboard.close()
