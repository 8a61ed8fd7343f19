"""What was sent before a timeout may be done much later: it must then do nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from mmcache.lab import servers
from mmcache.model.errors import AssetError
from mmcache.model.event import MissReason, RefuseReason
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.valkey import ValkeyTier

KEY = make_key(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    try:
        with servers.server(tmp_path_factory.mktemp("valkey")) as started:
            yield started
    except AssetError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("size", [10, 30_000, 600_000, 3_000_000])
@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("drops", [True, False])
def test_a_put_that_was_given_up_overtakes_no_later_drop_and_no_later_put(
    server: servers.Server, size: int, leads: bool, drops: bool
) -> None:
    server.ask("FLUSHALL")
    hasty = ValkeyTier.open(server.url, timeout_seconds=0.05, rest_seconds=1e-9, heartbeat=False)
    patient = ValkeyTier.open(server.url, timeout_seconds=30, heartbeat=False)
    for _ in range(3):  # the server knows all scripts, both have a connection
        patient.put([make_frame(KEY, b"older")], [None])
        hasty.get([KEY])
    if leads:
        patient.drop([KEY])
        while not (hasty.claims.acquire(KEY) and hasty.tokens.due()):  # it is hasty: on a busy machine it is blind
            hasty.claims.release(KEY)
    server.pause()
    assert hasty.put([make_frame(KEY, b"given up" * (size // 8))], [None]) == [RefuseReason.TIER_DOWN]

    def later() -> None:
        if drops:
            patient.drop([KEY])
        else:
            patient.put([make_frame(KEY, b"newer")], [None])

    thread = threading.Thread(target=later)
    thread.start()
    server.resume()
    thread.join()
    for _ in range(20):
        (found,) = patient.get([KEY])
        if drops:
            assert found is MissReason.ABSENT
        else:
            assert isinstance(found, Found)
            assert bytes(found.frame.payload) == b"newer"
    hasty.close()
    patient.close()
