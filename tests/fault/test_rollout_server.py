"""A rollout whose state is on a real server: one that forgets everything, and one that is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache import Cache
from mmcache.cli import signature
from mmcache.cli.output import Exit
from mmcache.lab import servers
from mmcache.model.errors import AssetError, TierError
from mmcache.model.event import Failed
from mmcache.rollout import Rollout
from mmcache.rollout.places import places
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey.client import Client, Request


@pytest.fixture
def server(tmp_path: Path) -> Iterator[servers.Server]:
    try:
        with servers.server(tmp_path / "valkey") as started:
            yield started
    except AssetError as missing:
        pytest.skip(str(missing))


def opened(cache: Cache, **options: Any) -> Rollout:
    versions = {"v1": lambda text: np.array([1.0]), "v2": lambda text: np.array([2.0])}
    return Rollout(cache, "clip", versions, modality="text", **options)


def settings(server: servers.Server) -> SharedSettings:
    return SharedSettings(f"valkey://127.0.0.1:{server.port}", prefix="team:", timeout_seconds=30)


def test_what_a_server_forgets_is_put_back(server: servers.Server, tmp_path: Path) -> None:
    with Cache(tmp_path / "a", shared=settings(server), secret=bytes(32)) as cache:
        encode = opened(cache)
        encode.canary("v2", percent=100)
        promoted = encode.promote()
        assert cache.below.shared is not None
        cache.below.shared.client.ask([Request(None, ("FLUSHALL",))])
        encode._watch.look()
        assert encode("x")[0] == 2.0
        with Cache(tmp_path / "b", shared=settings(server), secret=bytes(32)) as other:
            assert opened(other).state() == promoted
        lost = [event.detail for event in cache.events.recent() if isinstance(event, Failed)]
        assert "its state was lost and is put back" in lost


def test_two_hosts_follow_the_command_line(server: servers.Server, tmp_path: Path) -> None:
    which = signature.Which(shared=f"valkey://127.0.0.1:{server.port}?prefix=team:")
    with (
        Cache(tmp_path / "a", shared=settings(server), secret=bytes(32)) as one,
        Cache(tmp_path / "b", shared=settings(server), secret=bytes(32)) as two,
    ):
        hosts = [opened(one), opened(two)]
        acts: list[tuple[Callable[[], int], float]] = [
            (lambda: signature.canary("v2", percent=100, which=which), 2.0),
            (lambda: signature.promote(which=which), 2.0),
            (lambda: signature.rollback(which=which, purge=True), 1.0),
        ]
        for act, expected in acts:
            assert act() == Exit.DONE
            for encode in hosts:
                encode._watch.look()
                assert encode("x")[0] == expected
        assert signature.status(which=which) == Exit.DONE


def test_a_host_that_starts_without_the_server_has_what_its_folder_remembers(
    server: servers.Server, tmp_path: Path
) -> None:
    with Cache(tmp_path / "a", shared=settings(server), secret=bytes(32)) as cache:
        encode = opened(cache)
        encode.canary("v2", percent=100)
        encode.promote()
    with Cache(tmp_path / "a", secret=bytes(32)) as cache:
        gone = Client(SharedSettings("valkey://127.0.0.1:1", timeout_seconds=30), clock=cache.clock)
        records, spare = places(cache.root, gone, "team:")
        encode = opened(cache, records=records, spare=spare)
        assert encode("x")[0] == 2.0
        with pytest.raises(TierError):
            encode.rollback()
        assert encode("y")[0] == 2.0
