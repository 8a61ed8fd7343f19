"""Caches of several hosts over one real server: what one stores the others find, what one invalidates all forget."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache import Cache, Prompt, Row
from mmcache.cli.app import run
from mmcache.lab.servers import Elsewhere, Server, ask, choose, server
from mmcache.model.clock import SystemClock
from mmcache.model.errors import AssetError, SettingsError
from mmcache.model.event import Failed, MissReason, Refused
from mmcache.model.key import Key
from mmcache.model.void import VoidKey
from mmcache.rows import RowIds
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey import ValkeyTier
from mmcache.tiers.valkey.client import Client
from mmcache.tiers.valkey.editions import ANEW, Change, Publisher
from mmcache.tiers.valkey.followed import tell_followed

SECRET = bytes(range(32))
PRODUCT = Row("products", 42, "text")


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Server]:
    try:
        choose()
    except AssetError as error:
        pytest.skip(str(error))
    with server(tmp_path / "server") as running:
        follow(running)
        yield running


@pytest.fixture
def opened(tmp_path: Path, valkey: Server) -> Iterator[Callable[..., Cache]]:
    """Opens a cache of a host by name; the folder stays when it is closed."""
    with ExitStack() as ends:

        def host(name: str, **more: Any) -> Cache:
            more = {"secret": SECRET, "shared": url(valkey), **more}
            return ends.enter_context(Cache(tmp_path / name, **more))

        yield host


def follow(valkey: Server, seconds: float = 3600.0, prefix: str = "mmcache:", login: str = "") -> None:
    """What `mmcache sync run` says."""
    client = Client(SharedSettings(f"valkey://{login}127.0.0.1:{valkey.port}?prefix={prefix}"), clock=SystemClock())
    tell_followed(client, {"products": ["text", "photo"], "shops": ["text"]}, seconds)
    client.close()


@pytest.fixture
def hosts(opened: Callable[..., Cache]) -> tuple[Cache, Cache]:
    return opened("one"), opened("other")


def url(valkey: Server) -> str:
    return f"valkey://127.0.0.1:{valkey.port}"


def key(cache: Cache, text: str = "k", **more: Any) -> Key:
    return cache.key(text, modality="text", signature="s", **more)


def until(true: Callable[[], bool]) -> None:
    """Wait for another thread's work."""
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.001)


def forgets(cache: Cache, text: str = "k") -> None:
    until(lambda: cache.peek(key(cache, text)) is None and cache.get(key(cache, text)) is None)


def publisher(cache: Cache) -> Publisher:
    assert cache.below.shared is not None
    return Publisher(cache.below.shared.client)


IDS = RowIds(SECRET)


def test_what_one_host_computed_the_others_find(hosts: tuple[Cache, Cache]) -> None:
    one, other = hosts
    value = one.get_or_compute(key(one), lambda: np.arange(6.0))
    one.flush()
    found = other.get_or_compute(key(other), lambda: pytest.fail("computed again"))
    assert np.array_equal(found, value)
    assert other.stats().hits_by_tier == {"memory": 0, "valkey": 1}
    other.flush()
    assert other.stats().tiers["disk"].blocks == 1  # it came to this host's disk, too


def test_sixteen_callers_on_two_hosts_compute_once(hosts: tuple[Cache, Cache]) -> None:
    calls: list[int] = []
    answers: list[Any] = []
    arrived = threading.Barrier(16)

    def compute() -> str:
        calls.append(1)
        return "value"

    def caller(cache: Cache) -> None:
        arrived.wait()
        answers.append(cache.get_or_compute(key(cache), compute))

    threads = [threading.Thread(target=caller, args=(hosts[n % 2],)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["value"] * 16
    assert len(calls) == 1


def test_a_batch_on_two_hosts_computes_each_input_once(hosts: tuple[Cache, Cache]) -> None:
    seen: list[str] = []

    def batch(texts: list[str]) -> list[str]:
        seen.extend(texts)
        return [text.upper() for text in texts]

    texts = [f"text {n}" for n in range(64)]
    encoders = [cache.wrap(str.upper, modality="text", signature="upper 1", batch=batch) for cache in hosts]
    results: list[list[str]] = []
    threads = [threading.Thread(target=lambda e=e: results.append(e.batch(texts))) for e in encoders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[text.upper() for text in texts]] * 2
    assert sorted(seen) == sorted(texts)


def test_an_invalidation_reaches_the_other_host(hosts: tuple[Cache, Cache]) -> None:
    one, other = hosts
    one.put(key(one), "old")
    one.flush()
    assert other.get(key(other)) == "old"
    other.flush()
    one.invalidate(key(one))
    forgets(other)


def test_what_was_made_from_it_on_the_other_host_goes_everywhere(hosts: tuple[Cache, Cache]) -> None:
    one, other = hosts
    one.put(key(one), "source")
    one.flush()

    def stored() -> bool:
        """The news of that put takes along what it finds made from an older value."""
        other.put(key(other, "answer"), "made from it")
        other.link(key(other, "answer"), key(other))
        other.flush()
        return bool(one.get(key(one, "answer")) == "made from it")

    until(stored)
    one.invalidate(key(one))
    forgets(other, "answer")
    forgets(one, "answer")


def test_a_newer_value_replaces_what_the_other_host_holds(hosts: tuple[Cache, Cache]) -> None:
    one, other = hosts
    one.put(key(one), "old")
    one.flush()
    assert other.get(key(other)) == "old"
    one.put(key(one), "new")
    one.flush()
    until(lambda: other.get(key(other)) == "new")
    assert one.get(key(one)) == "new"


def test_what_was_invalidated_while_a_host_was_down_is_not_on_its_disk_when_it_returns(
    opened: Callable[..., Cache],
) -> None:
    one, other = opened("one"), opened("other")
    one.put(key(one), "old")
    one.flush()
    assert other.get(key(other)) == "old"
    other.close()
    one.invalidate(key(one))
    other = opened("other")
    forgets(other)


@pytest.mark.parametrize("lost", ["XTRIM mmcache:{news} MAXLEN 0", "DEL mmcache:{news}", "FLUSHALL"])
def test_who_may_have_missed_something_forgets_everything(
    opened: Callable[..., Cache], valkey: Server, lost: str
) -> None:
    one, other = opened("one"), opened("other")
    one.put(key(one), "old")
    one.flush()
    assert other.get(key(other)) == "old"
    other.close()
    one.invalidate(key(one))
    ask(valkey.port, *lost.split())
    one.invalidate(key(one, "something else"))  # the stream begins anew
    other = opened("other")
    forgets(other)


def test_hosts_that_run_notice_that_the_news_are_lost(hosts: tuple[Cache, Cache], valkey: Server) -> None:
    one, other = hosts
    one.put(key(one), "kept")
    one.flush()
    one.invalidate(key(one, "first"))
    assert other.get(key(other)) == "kept"
    shared = other.below.shared
    assert shared is not None
    until(lambda: shared.news.heard() and ask(valkey.port, "XLEN", "mmcache:{news}") > 0)
    until(lambda: shared.news._place is not None and shared.news._place.id != b"0-0")
    ask(valkey.port, "FLUSHALL")
    until(lambda: shared.news.gaps == 1)
    forgets(other)


def test_what_could_not_be_told_is_told_later(tmp_path: Path, valkey: Server) -> None:
    quick = SharedSettings(url(valkey), timeout_seconds=0.2, rest_seconds=0.05)
    with Cache(tmp_path / "one", shared=quick, secret=SECRET) as one, Cache(
        tmp_path / "other", shared=quick, secret=SECRET
    ) as other:  # fmt: skip
        one.put(key(one), "old")
        one.flush()
        assert other.get(key(other)) == "old"
        other.flush()
        os.kill(valkey.pid, signal.SIGSTOP)
        one.invalidate(key(one))
        assert one.get(key(one)) is None  # this host does not go on serving it, whatever the server says
        os.kill(valkey.pid, signal.SIGCONT)
        forgets(other)
        forgets(one)


def test_caches_of_another_secret_are_told_so(opened: Callable[..., Cache], tmp_path: Path, valkey: Server) -> None:
    opened("one")
    with pytest.raises(SettingsError, match="another secret"):
        Cache(tmp_path / "stranger", shared=url(valkey))


def test_tenants_and_prefixes_never_meet(opened: Callable[..., Cache], valkey: Server) -> None:
    one = opened("one")
    one.put(key(one), "of one")
    one.flush()
    for other in (opened("other", tenant="acme"), opened("third", shared=f"{url(valkey)}?prefix=acme:")):
        assert other.get(key(other)) is None


# rows


def counted(cache: Cache, loads: list[str], value: list[str]) -> Callable[..., Any]:
    encode = cache.wrap(lambda text: text.upper(), modality="text", signature="upper 1")

    def load() -> str:
        loads.append(value[0])
        return value[0]

    return lambda row=PRODUCT: encode.row(row, load)


def test_a_row_is_loaded_once_until_it_changes(hosts: tuple[Cache, Cache]) -> None:
    loads: list[str] = []
    value = ["shoe"]
    one, other = (counted(cache, loads, value) for cache in hosts)
    assert [one(), one()] == ["SHOE"] * 2
    hosts[0].flush()
    assert [other(), other()] == ["SHOE"] * 2
    assert loads == ["shoe"]
    value[0] = "boot"
    publisher(hosts[0]).apply([Change(IDS.group("products", (42,), "text"), 7)])
    until(lambda: one() == "BOOT")
    hosts[0].flush()
    until(lambda: other() == "BOOT")
    assert one() == other() == "BOOT"
    publisher(hosts[0]).apply([Change(IDS.group("products", (42,), "text"), 7)])  # again, and an older one
    publisher(hosts[0]).apply([Change(IDS.group("products", (42,), "text"), 6)])
    assert one() == other() == "BOOT"


@pytest.mark.parametrize("source", [IDS.table("products"), IDS.row("products", (42,))])
def test_what_nobody_can_place_changes_all_that_it_may_be_about(hosts: tuple[Cache, Cache], source: bytes) -> None:
    one, other = hosts
    before = [key(cache, rows=PRODUCT) for cache in hosts]
    assert before[0] == before[1] != key(one)
    publisher(one).apply([Change(source, ANEW)])
    until(lambda: key(one, rows=PRODUCT) != before[0])
    until(lambda: key(other, rows=PRODUCT) == key(one, rows=PRODUCT))


def test_other_rows_and_other_columns_stay(hosts: tuple[Cache, Cache]) -> None:
    one, _ = hosts
    others = [Row("products", 43, "text"), Row("products", 42, "photo"), Row("shops", 42, "text")]
    before = [key(one, rows=row) for row in others]
    mine = key(one, rows=PRODUCT)
    publisher(one).apply([Change(IDS.group("products", (42,), "text"), 9)])
    until(lambda: key(one, rows=PRODUCT) != mine)
    assert [key(one, rows=row) for row in others] == before


def test_a_lost_edition_is_a_miss_and_never_comes_back(hosts: tuple[Cache, Cache], valkey: Server) -> None:
    one, other = hosts
    seen = {key(one, rows=PRODUCT), key(other, rows=PRODUCT)}
    for version in range(5):
        for name in ask(valkey.port, "KEYS", "mmcache:{e:*"):
            ask(valkey.port, "DEL", name)
        publisher(one).apply([Change(IDS.group("products", (42,), "text"), version % 2)])  # replayed, too
        until(lambda: not seen & {key(cache, rows=PRODUCT) for cache in hosts})  # noqa: B023 - called at once
        seen |= {key(cache, rows=PRODUCT) for cache in hosts}


def test_who_hears_nothing_serves_nothing_that_rests_on_rows(tmp_path: Path, valkey: Server) -> None:
    passed = [0.0]
    settings = SharedSettings(url(valkey), timeout_seconds=0.2, rest_seconds=0.05)
    with Cache(tmp_path / "one", shared=settings, secret=SECRET, clock=Elsewhere(passed=passed)) as one:
        loads: list[str] = []
        row = counted(one, loads, ["shoe"])
        assert [row(), row()] == ["SHOE"] * 2
        one.put(key(one), "not of a row")
        one.flush()
        os.kill(valkey.pid, signal.SIGSTOP)
        try:
            passed[0] += 1.6  # the lease is over
            place = key(one, rows=PRODUCT)
            assert isinstance(place, VoidKey)
            assert place.reason is MissReason.STALE_LEASE
            assert one.get_or_compute(place, lambda: "computed") == "computed"
            assert one.get(place) is None
            assert not one.put(place, "computed")
            assert [row(), row()] == ["SHOE"] * 2
            assert loads == ["shoe"] * 3
            assert one.stats().miss_reasons["stale-lease"] >= 3
            assert one.get(key(one)) == "not of a row"
        finally:
            os.kill(valkey.pid, signal.SIGCONT)
        until(lambda: not isinstance(key(one, rows=PRODUCT), VoidKey))
        until(lambda: row() == "SHOE" and len(loads) == 3)


def test_what_nobody_follows_is_not_served_by_row(opened: Callable[..., Cache], valkey: Server) -> None:
    passed = [0.0]
    cache = opened("one", clock=Elsewhere(passed=passed))
    unmapped = key(cache, rows=Row("users", 1)), key(cache, rows=Row("products", 42, "txet"))
    assert [getattr(place, "reason", None) for place in unmapped] == [MissReason.STALE_LEASE, MissReason.ABSTAINED]
    assert [event.where for event in cache.events.recent() if isinstance(event, Failed)] == ["rows"]
    assert not isinstance(key(cache, rows=PRODUCT), VoidKey)
    follow(valkey, seconds=0.001)  # the follower is gone
    passed[0] += 1.4  # within the lease: it asks again
    until(lambda: isinstance(key(cache, rows=PRODUCT), VoidKey))
    follow(valkey)
    passed[0] += 1.0
    until(lambda: not isinstance(key(cache, rows=PRODUCT), VoidKey))


def test_rows_need_somebody_who_hears_what_changes(tmp_path: Path) -> None:
    with Cache(tmp_path) as alone, pytest.raises(SettingsError, match="shared"):
        key(alone, rows=PRODUCT)


def test_an_answer_that_rests_on_a_row_goes_with_it(hosts: tuple[Cache, Cache]) -> None:
    one, _ = hosts
    answers = iter(["blue", "red"])
    prompt = Prompt("What colour is it?", rows=[PRODUCT])
    assert [one.ask(prompt, lambda prompt: next(answers), model="m").value for _ in range(2)] == ["blue"] * 2
    publisher(one).apply([Change(IDS.group("products", (42,), "text"), 3)])
    until(lambda: one.ask(prompt, lambda prompt: next(answers, "red"), model="m").value == "red")


@pytest.mark.parametrize("asked", [True, False])
def test_a_changed_document_is_changed_on_every_host(
    hosts: tuple[Cache, Cache], opened: Callable[..., Cache], asked: bool
) -> None:
    """Also where the process that hears it has asked nothing itself: others of its folder have."""
    one, other = hosts
    prompt = Prompt("What does it say?", documents=["page 1"])
    answers = iter(["old", "new"])
    asks = other if asked else opened("other")
    assert asks.ask(prompt, lambda prompt: next(answers), model="m").value == "old"
    one.changed("document", "page 1")
    until(lambda: asks.ask(prompt, lambda prompt: next(answers, "new"), model="m").value == "new")


def test_a_forked_child_shares_and_hears(hosts: tuple[Cache, Cache]) -> None:
    one, other = hosts
    one.put(key(one), "old")
    one.flush()
    assert other.get(key(other)) == "old"
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert other.get(key(other)) == "old"
            os.write(tell, b"1")
            forgets(other)
            code = 0
        finally:
            os._exit(code)
    os.read(told, 1)
    one.invalidate(key(one))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(told)
    os.close(tell)


async def test_the_async_twins_share(hosts: tuple[Cache, Cache]) -> None:
    one, other = hosts
    place = await one.a.key("k", modality="text", signature="s", rows=[PRODUCT])
    assert await one.a.get_or_compute(place, lambda: "value") == "value"
    one.flush()
    there = await other.a.key("k", modality="text", signature="s", rows=[PRODUCT])
    assert await other.a.get_or_compute(there, lambda: pytest.fail("computed again")) == "value"
    encode = other.wrap(str.upper, modality="text", signature="upper 1")
    assert await encode.arow(PRODUCT, lambda: "shoe") == "SHOE"


async def test_a_cancelled_caller_gives_back_what_it_claims_meanwhile(hosts: tuple[Cache, Cache]) -> None:
    one, other = hosts
    entered = threading.Event()

    async def slow() -> str:
        entered.set()
        await asyncio.sleep(60)
        return "never"

    task = asyncio.create_task(one.a.get_or_compute(key(one), slow))
    while not entered.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await other.a.get_or_compute(key(other), lambda: "value") == "value"


def test_the_command_line_looks_into_the_shared_tier_and_purges_it(
    hosts: tuple[Cache, Cache], valkey: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = hosts
    for tenant in ("acme", "default"):
        one.put(key(one, tenant=tenant), tenant)
    one.flush()
    assert other.get(key(other, tenant="acme")) == "acme"

    def told(*words: str) -> dict[str, Any]:
        assert run([*words, "--shared", url(valkey), "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    before = told("stats")
    assert {group["tenant"] for group in before["groups"]} == {"acme", "default"}
    assert told("purge", "--tenant", "acme")["blocks"] == 1
    assert {group["tenant"] for group in told("stats")["groups"]} == {"default"}
    until(lambda: other.get(key(other, tenant="acme")) is None)
    assert run(["stats", "--shared", url(valkey), "--root", "x"]) == 3


def test_a_cache_opens_and_serves_while_no_server_is_there(tmp_path: Path) -> None:
    nowhere = SharedSettings("valkey://127.0.0.1:1", timeout_seconds=0.2)
    with Cache(tmp_path, shared=nowhere, secret=SECRET) as cache:
        assert any(isinstance(event, Failed) and event.where == "shared" for event in cache.events.recent())
        assert cache.get_or_compute(key(cache), lambda: "value") == "value"
        assert cache.get(key(cache)) == "value"
        assert cache.invalidate(key(cache)) > 0
        assert cache.get(key(cache)) is None
        assert isinstance(key(cache, rows=PRODUCT), VoidKey)
        encode = cache.wrap(str.upper, modality="text", signature="upper 1")
        assert encode.row(PRODUCT, lambda: "shoe") == "SHOE"


def documented_rights(name: str, password: str, prefix: str) -> str:
    """What the documentation says that a tenant's user needs, as an ACL rule."""
    text = ValkeyTier.__doc__ or ""
    rule = text.split("commands::")[1].split("The last line")[0].replace("\\", " ")
    words = " ".join(rule.split()).replace("user NAME ", "").replace("PASSWORD", password).replace("PREFIX", prefix)
    return words.replace("NAME", name)


def test_a_tenant_of_a_server_has_all_of_a_cache_within_its_prefix_and_nothing_beyond(tmp_path: Path) -> None:
    try:
        choose()
    except AssetError as error:
        pytest.skip(str(error))
    rights = documented_rights("acme", "pw", "acme:")
    with server(tmp_path / "server", users={"acme": rights}) as valkey, ExitStack() as ends:
        at = f"valkey://acme:pw@127.0.0.1:{valkey.port}"
        one, other = (
            ends.enter_context(Cache(tmp_path / name, shared=f"{at}?prefix=acme:", secret=SECRET))
            for name in ("one", "other")
        )
        one.put(key(one), "old")
        one.flush()
        assert other.get(key(other)) == "old"
        one.invalidate(key(one))
        forgets(other)
        follow(valkey, prefix="acme:", login="acme:pw@")
        before = key(one, rows=PRODUCT)
        assert not isinstance(before, VoidKey)
        publisher(one).apply([Change(IDS.group("products", (42,), "text"), 1)])
        until(lambda: key(one, rows=PRODUCT) != before)
        one.ask(Prompt("?", documents=["page"]), lambda prompt: "answer", model="m")
        one.changed("document", "page")
        encode = one.rollout("model", {"v1": str.upper, "v2": str.lower}, modality="text")
        encode.canary("v2", percent=100)
        assert encode("Abc") == "abc"
        encode.promote()
        for cache in (one, other):
            assert not [event for event in cache.events.recent() if isinstance(event, Failed | Refused)]
        beyond = ends.enter_context(Cache(tmp_path / "beyond", shared=f"{at}?prefix=other:", secret=SECRET))
        assert beyond.get_or_compute(key(beyond), lambda: "computed") == "computed"
        assert beyond.stats().miss_reasons == {"denied": 1}
        beyond.flush()
        assert not ask(valkey.port, "KEYS", "other:*")
