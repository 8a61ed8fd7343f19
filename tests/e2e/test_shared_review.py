"""Races and faults between hosts, each made to happen: nothing outdated comes back, nothing that was told is lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mmcache import Cache, Prompt
from mmcache.keeping import Keeping
from mmcache.lab.servers import Server, ask, choose, server
from mmcache.model.errors import AssetError, TierError
from mmcache.model.event import Failed, RefuseReason
from mmcache.model.key import Key
from mmcache.semantic.ledger import Ledger
from mmcache.semantic.prompt import source_id
from mmcache.settings import SharedSettings
from mmcache.shared import Shared
from mmcache.tiers.valkey.feed import AT_ONCE, Feed
from mmcache.tiers.valkey.news import NewsReader

SECRET = bytes(range(32))


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Server]:
    try:
        choose()
    except AssetError as error:
        pytest.skip(str(error))
    with server(tmp_path / "server") as running:
        yield running


@pytest.fixture
def opened(tmp_path: Path, valkey: Server) -> Iterator[Callable[..., Cache]]:
    """Opens a cache of a host by name; None = one without a folder."""
    with ExitStack() as ends:

        def host(name: str | None, **more: Any) -> Cache:
            more = {"secret": SECRET, "shared": f"valkey://127.0.0.1:{valkey.port}", **more}
            return ends.enter_context(Cache(None if name is None else tmp_path / name, **more))

        yield host


@pytest.fixture
def hosts(opened: Callable[..., Cache]) -> tuple[Cache, Cache]:
    return opened("one"), opened("other")


def key(cache: Cache, text: str = "k") -> Key:
    return cache.key(text, modality="text", signature="s")


def shared(cache: Cache) -> Shared:
    assert cache.below.shared is not None
    return cache.below.shared


def until(true: Callable[[], bool]) -> None:
    """Wait for another thread's work."""
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.001)


def forgets(cache: Cache, text: str = "k", value: object = None) -> None:
    until(lambda: cache.get(key(cache, text)) == value)


def held_by(cache: Cache, other: Cache, *texts: str) -> None:
    """`old` is what `cache` put, and what `other` has in memory and on its disk."""
    for text in texts or ("k",):
        cache.put(key(cache, text), "old")
    cache.flush()
    for text in texts or ("k",):
        assert other.get(key(other, text)) == "old"
    other.flush()


def fails(*arguments: object, **keywords: object) -> Any:
    raise TierError("the node is gone")


def test_a_server_that_is_gone_at_the_start_fails_nobody(tmp_path: Path) -> None:
    with Cache(tmp_path / "one", shared="valkey://127.0.0.1:1", secret=SECRET) as one:
        assert one.get_or_compute(key(one), lambda: "value") == "value"
        assert one.get(key(one)) == "value"
        assert any(isinstance(event, Failed) and event.where == "shared" for event in one.events.recent())


def test_what_could_not_be_told_is_told_at_the_end(hosts: tuple[Cache, Cache], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = hosts
    held_by(one, other)
    shared(one).news.close()
    with monkeypatch.context() as down:
        down.setattr(shared(one)._feed, "tell", fails)
        one.invalidate(key(one))
    one.close()
    forgets(other)


def test_a_forked_process_without_a_folder_is_another_one(opened: Callable[..., Cache]) -> None:
    one = opened(None)
    one.put(key(one), "old")
    one.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            one.invalidate(key(one))
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    forgets(one)


def test_what_is_invalidated_while_a_host_begins_to_listen_is_heard(
    opened: Callable[..., Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened("one")
    one.put(key(one), "old")
    one.flush()
    run, go = NewsReader._run, threading.Event()

    def late(reader: NewsReader) -> None:
        go.wait(30)
        run(reader)

    monkeypatch.setattr(NewsReader, "_run", late)
    other = opened("other")
    assert other.get(key(other)) == "old"
    one.invalidate(key(one))
    go.set()
    forgets(other)


def test_who_forgets_everything_forgets_what_is_being_read(
    hosts: tuple[Cache, Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = hosts
    one.put(key(one), "old")
    one.flush()
    tier: Any = shared(other).tier
    read = tier.get

    def get(keys: Sequence[Key]) -> Any:
        found = read(keys)
        other._store.hear(None)
        return found

    monkeypatch.setattr(tier, "get", get)
    assert other.get(key(other)) == "old"  # who asked before may get it
    assert other.peek(key(other)) is None


def test_who_forgets_everything_forgets_what_comes_from_the_disk_meanwhile(
    hosts: tuple[Cache, Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = hosts
    held_by(one, other)
    other._store.memory.drop([key(other)])
    disk: Any = other._store.lower[0]
    drop = disk.drop

    def read_first(keys: Sequence[Key]) -> Any:
        assert other.get(key(other)) == "old"
        return drop(keys)

    monkeypatch.setattr(disk, "drop", read_first)
    other._store.hear(None)
    assert other.peek(key(other)) is None


def test_an_older_value_on_a_node_that_is_gone_is_dropped_when_it_returns(
    hosts: tuple[Cache, Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = hosts
    held_by(one, other)
    with monkeypatch.context() as down:
        down.setattr(shared(one).valkey, "put", lambda frames, deadlines: [RefuseReason.TIER_DOWN] * len(frames))
        down.setattr(shared(one).valkey._writer, "drop", fails)
        one.put(key(one), "new")
        shared(one).tier.flush()
        until(lambda: other.peek(key(other)) is None)
    until(lambda: other.get(key(other)) != "old")


def test_a_node_that_is_gone_keeps_nobody_from_hearing_of_the_others(
    hosts: tuple[Cache, Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = hosts
    held_by(one, other, "there", "here")
    drop = shared(one).valkey.drop

    def drop_here(keys: Sequence[Key]) -> int:
        dropped = drop([one_key for one_key in keys if one_key != key(one, "there")])
        return fails() if key(one, "there") in keys else dropped

    with monkeypatch.context() as down:
        down.setattr(shared(one).valkey, "drop", drop_here)
        one.invalidate(key(one, "there"))
        one.invalidate(key(one, "here"))
        forgets(other, "here")
    forgets(other, "there")


def test_who_has_not_read_all_news_does_not_go_by_what_it_knows(valkey: Server) -> None:
    settings = SharedSettings(f"valkey://127.0.0.1:{valkey.port}")
    with Cache(shared=settings, secret=SECRET) as one:
        shared(one).news.close()
        client = shared(one).client
        feed = Feed(client, b"")
        known, all_read = list[bool](), threading.Event()

        def on_news(news: Any) -> None:
            known.append(reader._now() < reader._until)
            if len(known) == 2 * AT_ONCE + 1:
                all_read.set()

        reader = NewsReader(
            client, settings, feed, clock=one.clock, on_news=on_news, on_gap=lambda: None, emit=lambda event: None
        )
        (last,) = client.ask([_request(feed)])
        reader._place = Feed.last(last)
        for _ in range(2 * AT_ONCE + 1):
            feed.tell(sources=[bytes(16)])
        reader.start()
        assert all_read.wait(30)
        until(reader.heard)
        reader.close()
        assert not any(known)


def _request(feed: Feed) -> Any:
    from mmcache.tiers.valkey.client import Request

    return Request(feed.key, feed.last_command())


def test_a_put_that_arrives_after_it_was_invalidated_does_not_stay(
    hosts: tuple[Cache, Cache], valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other host drops what is not there yet, and this one hears of it when it has written already."""
    one, other = hosts
    tier, entered, dropped, written = shared(one).valkey, threading.Event(), threading.Event(), threading.Event()
    put, on_news = tier.put, shared(one).news._on_news

    def late(*arguments: Any) -> Any:
        entered.set()
        assert dropped.wait(30)
        return put(*arguments)

    def later(news: Any) -> None:
        assert written.wait(30)
        on_news(news)

    monkeypatch.setattr(tier, "put", late)
    monkeypatch.setattr(shared(one).news, "_on_news", later)
    one.put(key(one), "old")
    assert entered.wait(30)
    other.invalidate(key(other))
    dropped.set()
    shared(one).tier.flush()
    assert other.get(key(other)) == "old"  # for a moment
    written.set()
    forgets(other)
    forgets(one)


def test_a_newer_put_of_another_host_stays(hosts: tuple[Cache, Cache]) -> None:
    one, other = hosts
    for n in range(5):
        for cache, there in (hosts, hosts[::-1]):
            cache.put(key(cache), f"{n} of {cache.root}")
            cache.flush()
            forgets(there, value=f"{n} of {cache.root}")
    assert one.get(key(one)) == other.get(key(other))


@pytest.mark.parametrize("refused", [True, False])
async def test_no_server_is_waited_for_on_the_event_loop(
    hosts: tuple[Cache, Cache], monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    one, _ = hosts
    loop, asked = threading.get_ident(), list[bool]()
    client = shared(one).client
    real = client.ask

    def noted(requests: Any) -> Any:
        asked.append(threading.get_ident() == loop)
        return real(requests)

    place = await one.a.key("k", modality="text", signature="s")
    if not refused:
        await one.a.get_or_compute(place, lambda: "value")
        await one.a.flush()
        monkeypatch.setattr(one.answers._revalidation, "due", lambda look: True)
    else:
        monkeypatch.setattr(Keeping, "judge", lambda *asked: RefuseReason.ADMISSION)
    monkeypatch.setattr(client, "ask", noted)
    computed = await one.a.get_or_compute(place, lambda: "computed")
    assert computed == "computed"
    assert asked
    assert not any(asked)


@pytest.mark.parametrize("folder", [False, True])
def test_a_host_that_did_not_hear_of_a_changed_document_finds_no_old_answer(
    opened: Callable[..., Cache], folder: bool
) -> None:
    """Without a disk tier, too: with a folder it hears what was told while it was away, without it shares none."""
    prompt = Prompt("What does it say?", documents=["page 1"])
    name = "other" if folder else None
    other = opened(name, disk=None)
    assert other.ask(prompt, lambda prompt: "old", model="m").value == "old"
    other.flush()
    until(lambda: shared(other).news.heard())
    other.close()
    opened("one").changed("document", "page 1")
    other = opened(name, disk=None)
    assert other.ask(prompt, lambda prompt: "new", model="m").value == "new"


def test_who_comes_back_hears_first_what_was_invalidated_meanwhile(
    opened: Callable[..., Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = opened("one"), opened("other")
    held_by(one, other)
    other.close()
    one.invalidate(key(one))
    assert opened("other").get(key(one)) is None


@pytest.mark.parametrize("strange", ["x 1", "n x p x o x k short s x a x"])
def test_what_nobody_can_read_among_the_news_keeps_nobody_from_hearing(
    hosts: tuple[Cache, Cache], valkey: Server, strange: str
) -> None:
    one, other = hosts
    held_by(one, other)
    ask(valkey.port, "XADD", "mmcache:{news}", "*", *strange.split())
    one.invalidate(key(one))
    forgets(other)
    until(shared(other).news.heard)


def test_a_load_of_many_puts_makes_few_news(hosts: tuple[Cache, Cache], valkey: Server) -> None:
    one, other = hosts
    held_by(one, other)
    before = int(ask(valkey.port, "XLEN", "mmcache:{news}"))
    for n in range(500):
        one.put(key(one, f"text {n}"), "value")
    one.put(key(one), "new")
    one.flush()
    forgets(other, value="new")
    assert int(ask(valkey.port, "XLEN", "mmcache:{news}")) - before < 50


def test_no_replica_is_asked_for_what_was_dropped_lately(
    opened: Callable[..., Cache], valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may lag, and what it gives would stay in memory."""
    settings = SharedSettings(f"valkey://127.0.0.1:{valkey.port}", replica_reads=True)
    one, other = opened("one", shared=settings), opened("other", shared=settings)
    asked: dict[str, list[bool]] = {"one": [], "other": []}

    def note(name: str, cache: Cache) -> None:
        real = shared(cache).client.ask

        def noted(requests: Any) -> Any:
            asked[name].extend(request.replica for request in requests if request.words[0] == "GETRANGE")
            return real(requests)

        monkeypatch.setattr(shared(cache).client, "ask", noted)
        monkeypatch.setattr(shared(cache).valkey._watch, "_ask", noted)

    note("one", one)
    note("other", other)
    one.get_or_compute(key(one), lambda: "old")
    one.flush()
    assert other.get(key(other)) == "old"
    assert asked["other"] == [True]
    one.invalidate(key(one))
    forgets(other)
    for name, cache in (("one", one), ("other", other)):
        asked[name].clear()
        assert cache.get(key(cache)) is None
        cache.get(key(cache, "something else"))
        assert asked[name] == [False, True]
    shared(other)._on_gap()
    asked["other"].clear()
    other.get(key(other, "something else"))
    assert asked["other"] == [False]


def test_a_ledger_that_cannot_be_written_keeps_nobody_from_hearing_the_rest(
    opened: Callable[..., Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = opened("one"), opened("other")
    held_by(one, other)
    prompt = Prompt("What does it say?", documents=["page 1"])
    assert other.ask(prompt, lambda prompt: "old", model="m").value == "old"
    with monkeypatch.context() as full:
        full.setattr(Ledger, "changed", fails)
        one.below.tell_sources([_source(one)])
        one.invalidate(key(one))
        forgets(other)
        assert other.ask(prompt, lambda prompt: "computed", model="m").value == "computed"
    until(lambda: shared(other).all_heard)
    assert other.ask(prompt, lambda prompt: "new", model="m").value == "new"


def _source(cache: Cache) -> bytes:
    salt = cache.scopes.require(cache.meaning._learning.source_key(bytes(16), "default", "default")).salt
    return source_id(salt, "document", "page 1")


def test_what_a_process_brings_to_the_disk_before_it_hears_the_others_forget_again(
    opened: Callable[..., Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    late, early, host = opened("one"), opened("one"), opened("other")
    host.put(key(host), "old")
    host.flush()
    until(lambda: shared(late).news._place == shared(early).news._place == _last(host))
    heard, write = threading.Event(), threading.Event()
    disk: Any = late._store.lower[0].inner  # type: ignore[attr-defined]
    put, on_news = disk.put, shared(late).news._on_news

    def put_later(*arguments: Any) -> Any:
        assert write.wait(30)
        return put(*arguments)

    def hear_later(news: Any) -> None:
        assert heard.wait(30)
        on_news(news)

    monkeypatch.setattr(disk, "put", put_later)
    monkeypatch.setattr(shared(late).news, "_on_news", hear_later)
    assert late.get(key(late)) == "old"
    host.invalidate(key(host))
    until(lambda: shared(early).news._place == _last(host))
    write.set()
    late.flush()
    assert early.get(key(early)) == "old"  # it may not: nobody has dropped it there
    heard.set()
    forgets(early)


def _last(cache: Cache) -> Any:
    (last,) = shared(cache).client.ask([_request(shared(cache)._feed)])
    return Feed.last(last)
