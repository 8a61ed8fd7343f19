"""The watcher: what it hears, whom it joins, what it tells, and that nobody waits for it or fails by it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE, until

from mmcache import Cache
from mmcache.hotkeys import HotKeys, HotView
from mmcache.hotkeys import heard as hearing
from mmcache.hotkeys.outlets import published
from mmcache.hotkeys.view import MOST_BYTES, MOST_EDGES, MOST_KEYS, HotKey, decode, encode
from mmcache.model.errors import SettingsError, UnknownPluginError
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.prefetch.behaviour import BehaviourPrefetch
from mmcache.testing.clock import FakeClock
from mmcache.visits import visit


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache(memory="8MiB", clock=FakeClock()) as one:
        yield one


def key(cache: Cache, text: str, **realm: Any) -> Key:
    return cache.key(text, modality="text", signature="s-1", **realm)


def ask(cache: Cache, *texts: str, **realm: Any) -> list[Key]:
    keys = [key(cache, text, **realm) for text in texts]
    for one in keys:
        cache.get_or_compute(one, lambda: b"value")
    return keys


def edges(view: HotView) -> dict[tuple[str, str], float]:
    return {(view.keys[one.source].key, view.keys[one.target].key): one.weight for one in view.edges}


def of(view: HotView, wanted: Key) -> HotKey:
    (found,) = [one for one in view.keys if one.key == wanted.short]
    return found


def test_misses_and_memorys_own_hits_are_heard_in_their_order(cache: Cache) -> None:
    with HotKeys(cache, threaded=False) as hot:
        a, b, c = ask(cache, "a", "b", "c")
        for _ in range(9):
            cache.get(a)
            cache.peek(b)
        view = hot.pump(1000.0)
    assert of(view, a).heat == of(view, b).heat == 10.0
    assert of(view, c).heat == 1.0
    found = edges(view)
    assert found[a.short, b.short] == 10.0
    assert found[b.short, a.short] == 8.0
    assert found[b.short, c.short] == found[c.short, a.short] == 1.0
    assert (of(view, a).tier, of(view, a).modality, of(view, a).tenant) == ("memory", "text", "default")
    assert of(view, a).bytes > 0
    assert decode(encode(view)) == view


def test_hits_before_a_miss_are_before_it(cache: Cache) -> None:
    (a,) = ask(cache, "a")
    with HotKeys(cache, threaded=False) as hot:
        hot.pump(999.0)
        cache.get(a)
        (b,) = ask(cache, "b")
        assert edges(hot.pump(1000.0)) == {(a.short, b.short): 1.0}


def test_a_lookup_is_heard_once(cache: Cache, tmp_path: Path) -> None:
    with Cache(tmp_path, memory="8MiB") as one, HotKeys(one, threaded=False) as hot:
        encode_ = one.wrap(lambda text: b"value", modality="text", signature="s-1", guard=False)
        for _ in range(5):
            encode_("a")
            encode_.batch(["a", "b"])
        view = hot.pump(1000.0)
    assert sorted(found.heat for found in view.keys) == [5.0, 10.0]


def test_who_is_told_of_visits_knows_sessions_apart() -> None:
    hot = HotKeys(threaded=False)
    with Cache(memory="8MiB", prefetch=hot) as cache:
        for _ in range(3):
            for one, other in (("a", "x"), ("b", "y"), ("c", "z")):
                with visit("first"):
                    ask(cache, one)
                with visit("second"):
                    ask(cache, other)
        view = hot.pump(1000.0)
        a, b, c, x = (key(cache, text).short for text in "abcx")
    found = edges(view)
    assert found[a, b] == found[b, c] == 3.0
    assert found[c, a] == 2.0
    assert (a, x) not in found
    assert (x, b) not in found
    assert {one.heat for one in view.keys} == {3.0}
    assert "first" not in encode(view).decode()


def test_keys_of_two_tenants_are_never_joined(cache: Cache) -> None:
    with HotKeys(cache, threaded=False) as hot:
        for _ in range(5):
            for tenant in ("acme", "umbra"):
                ask(cache, "a", "b", tenant=tenant)
            ask(cache, "a", namespace="other")
        view = hot.pump(1000.0)
    realms = {key(cache, text, tenant=tenant).short: tenant for text in "ab" for tenant in ("acme", "umbra")}
    realms[key(cache, "a", namespace="other").short] = "default"
    assert {one.key: one.tenant for one in view.keys} == realms
    assert view.edges
    assert all(realms[one] == realms[other] for one, other in edges(view))


@dataclass(frozen=True)
class Mark:
    key: Key


def test_who_brings_many_keys_pushes_out_none_of_anothers(cache: Cache) -> None:
    with HotKeys(cache, threaded=False, most_keys=64, most_edges=64) as hot:
        quiet = ask(cache, *"abcdefgh", tenant="quiet")
        hot.pump(1000.0)
        for turn in range(20):
            loud = [f"{turn}-{number}" for number in range(40)]
            ask(cache, *loud, *loud, tenant="loud")
            ask(cache, *loud, *loud, tenant="loud", namespace="another")
            view = hot.pump(1001.0 + turn)
        assert {of(view, one).tenant for one in quiet} == {"quiet"}
        assert set(zip((one.short for one in quiet), (one.short for one in quiet[1:]), strict=False)) <= set(
            edges(view)
        )


def test_two_watchers_of_one_process_are_two(tmp_path: Path) -> None:
    with (
        Cache(tmp_path, memory="8MiB") as cache,
        HotKeys(cache, threaded=False) as one,
        HotKeys(cache, threaded=False) as other,
    ):
        seen = {hot.pump(1000.0).instance for hot in (one, other)}
        assert len(seen) == 2
        assert {view.instance for view in published(tmp_path)[0]} == seen
        other.close()
        with HotKeys(cache, threaded=False) as third:
            assert third.pump(1000.0).instance == other.view().instance  # the number is free again


def test_then_may_be_a_name() -> None:
    hot = HotKeys(threaded=False, then="behaviour")
    with Cache(memory="8MiB", prefetch=hot) as cache:
        ask(cache, "a")
        assert isinstance(hot.then, BehaviourPrefetch)
        assert hot.then.status().state
    with pytest.raises(UnknownPluginError):
        HotKeys(then="no-such")


def test_a_name_with_a_lone_surrogate_is_told(tmp_path: Path) -> None:
    with Cache(tmp_path, memory="8MiB") as cache, HotKeys(cache, threaded=False, service="shop\udcff") as hot:
        ask(cache, "a")
        hot.pump(1000.0)
        assert [view.service for view in published(tmp_path)[0]] == ["shop?"]
    named = HotView(1.0, "shop", "host-1", [HotKey("a" * 16, 1.0, {"\ud800": 1.0}, tenant="\udcff")])
    assert decode(encode(named)).keys[0].tenant == "?"


class Lowered:
    """Says at which priority it is asked."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def score(self, key: Key, heat: float) -> tuple[float, dict[str, float]]:
        self.seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return heat, {}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has a priority of threads")
def test_it_looks_at_the_priority_of_those_who_wait_for_its_lock(cache: Cache) -> None:
    scores = Lowered()
    with HotKeys(cache, every=0.1, scores=scores):
        ask(cache, "a")
        until(lambda: bool(scores.seen), "looked")
    assert set(scores.seen) == {os.getpriority(os.PRIO_PROCESS, 0)}


def test_a_tracers_mark_makes_hot(cache: Cache) -> None:
    (a,) = ask(cache, "a")
    with HotKeys(cache, threaded=False) as hot:
        hot.marked(Mark(a))
        hot.marked(Mark(a))
        assert of(hot.pump(1000.0), a).heat == 100.0


def test_communities_are_told_with_their_keys(cache: Cache) -> None:
    with HotKeys(cache, threaded=False) as hot:
        for turn in range(20):
            for group in ("abcd", "wxyz"):
                ask(cache, *group, *group)
            view = hot.pump(1000.0 + turn)
        groups = {text: of(view, key(cache, text)).community for text in "abcdwxyz"}
    assert len({groups[text] for text in "abcd"}) == len({groups[text] for text in "wxyz"}) == 1
    assert groups["a"] != groups["w"]
    assert {one.id for one in view.communities} == {groups["a"], groups["w"]}
    assert [one.what for one in hot.happened] == ["appeared", "appeared"]


class Lives:
    def expect(self, key: Key) -> tuple[float, float] | None:
        return 12.0, 0.9


class Broken:
    def expect(self, key: Key) -> tuple[float, float] | None:
        raise RuntimeError("no")

    def score(self, key: Key, heat: float) -> tuple[float, dict[str, float]]:
        raise RuntimeError("no")


def test_how_long_and_how_hot_are_others_word(cache: Cache) -> None:
    class Mine:
        def score(self, key: Key, heat: float) -> tuple[float, dict[str, float]]:
            return -heat, {"cold": heat}

    with HotKeys(cache, threaded=False, scores=Mine(), lifetimes=Lives()) as hot:
        a, b = ask(cache, "a", "b")
        ask(cache, "b")
        view = hot.pump(1000.0)
    assert [one.key for one in view.keys] == [a.short, b.short]
    assert (view.keys[1].score, view.keys[1].parts) == (-2.0, {"cold": 2.0})
    assert (view.keys[0].expected_hours, view.keys[0].confidence) == (12.0, 0.9)


class Endless:
    def expect(self, key: Key) -> tuple[float, float] | None:
        return float("inf"), 1.0

    def score(self, key: Key, heat: float) -> tuple[float, dict[str, float]]:
        return float("nan"), {}


@pytest.mark.parametrize("plugin", [Broken, Endless])
def test_a_plugin_that_fails_costs_its_figures_and_is_said(cache: Cache, plugin: type[Broken | Endless]) -> None:
    with HotKeys(cache, threaded=False, scores=plugin(), lifetimes=plugin()) as hot:
        ask(cache, "a", "b")
        view = hot.pump(1000.0)
    assert [one.score for one in view.keys] == [1.0, 1.0]
    assert view.keys[0].expected_hours is None
    assert decode(encode(view)) == view
    said = [event for event in cache.events.recent() if isinstance(event, Failed)]
    assert {event.where for event in said} == {"hotkeys"}


def test_a_view_holds_no_more_than_it_may(cache: Cache) -> None:
    names = [f"{'ü' * 2000}{number}" for number in range(300)]
    with HotKeys(cache, threaded=False) as hot:
        for _ in range(2):
            ask(cache, *(f"t{number}" for number in range(400)))
            for name in names:
                ask(cache, "a", tenant=name)
        view = hot.pump(1000.0)
    assert 0 < len(view.keys) <= MOST_KEYS
    assert len(view.edges) <= MOST_EDGES
    assert len(encode(view)) <= MOST_BYTES
    assert view.tracked_keys == 700
    assert decode(encode(view)) == view


def test_too_many_uses_are_thinned_and_weigh_more(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "MOST_USES", 10)
    with HotKeys(cache, threaded=False) as hot:
        for _ in range(20):
            ask(cache, "a", "b")
        view = hot.pump(1000.0)
    assert {one.heat for one in view.keys} == {20.0}


def test_memory_stays_bounded_whatever_comes(cache: Cache) -> None:
    with HotKeys(cache, threaded=False, most_keys=64, most_edges=128) as hot:
        for turn in range(20):
            ask(cache, *(f"{turn}-{number}" for number in range(100)))
            view = hot.pump(1000.0 + turn)
            assert view.tracked_keys <= 64
            assert view.tracked_edges <= 128


def test_the_file_is_only_its_owners_and_gone_at_the_end(tmp_path: Path) -> None:
    with Cache(tmp_path, memory="8MiB") as cache:
        with HotKeys(cache, threaded=False) as hot:
            ask(cache, "a")
            view = hot.pump(1000.0)
            (path,) = (tmp_path / "hot").iterdir()
            assert decode(path.read_bytes()) == view
            assert path.stat().st_mode & 0o777 == 0o600
            assert (tmp_path / "hot").stat().st_mode & 0o777 == 0o700
            ask(cache, "b")
            hot.pump(1000.5)  # too soon for another
            assert decode(path.read_bytes()) == view
        assert list((tmp_path / "hot").iterdir()) == []


def test_a_cache_without_a_folder_or_that_is_told_not_to_writes_nothing(tmp_path: Path) -> None:
    with Cache(memory="8MiB") as plain, HotKeys(plain, threaded=False) as hot:
        ask(plain, "a")
        hot.pump(1000.0)
    with Cache(tmp_path, memory="8MiB") as cache, HotKeys(cache, threaded=False, publish=False) as hot:
        hot.pump(1000.0)
        assert not (tmp_path / "hot").exists()


def test_a_folder_that_cannot_be_written_fails_nobody(tmp_path: Path) -> None:
    with Cache(tmp_path, memory="8MiB") as cache, HotKeys(cache, threaded=False) as hot:
        (tmp_path / "hot").write_text("in the way")
        ask(cache, "a")
        assert len(hot.pump(1000.0).keys) == 1


def test_closing_the_cache_closes_the_watcher_and_its_thread() -> None:
    cache = Cache(memory="8MiB")
    hot = HotKeys(cache, every=0.1)
    ask(cache, "a")
    until(lambda: len(hot.view().keys) == 1, "looked")
    cache.close()
    assert not [one for one in threading.enumerate() if one.name == "mmcache-hot"]
    assert hot.pump() is hot.view()
    hot.close()
    hot.visited(Key(b"s" * 16, b"d" * 16))
    hot.marked(Mark(Key(b"s" * 16, b"d" * 16)))


def test_a_watcher_that_keeps_failing_stops_and_the_cache_goes_on(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = HotKeys(cache, every=0.1, threaded=False)

    def broken(now: float | None = None) -> HotView:
        raise RuntimeError("no")

    monkeypatch.setattr(hot, "pump", broken)
    hot._threaded = True
    hot._launch()
    thread: Any = hot._thread
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert hot.failures == 10
    assert ask(cache, "a")
    hot.close()


def test_a_forked_child_watches_for_itself(tmp_path: Path) -> None:
    with Cache(tmp_path, memory="8MiB") as cache, HotKeys(cache, every=0.1) as hot:
        (a,) = ask(cache, "a")
        until(lambda: len(hot.view().keys) == 1, "looked")
        child = os.fork()
        if not child:
            code = 1
            try:
                (b,) = ask(cache, "b")
                until(lambda: [one.key for one in hot.view().keys] == [b.short], "looked by itself")
                mine = f"hot-{os.getpid()}-*.json"
                until(lambda: bool(list((tmp_path / "hot").glob(mine))), "said so")
                hot.close()
                code = 0 if not list((tmp_path / "hot").glob(mine)) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [one.key for one in hot.view().keys] == [a.short]
        assert list((tmp_path / "hot").glob(f"hot-{os.getpid()}*.json"))


def test_all_visits_of_many_threads_are_heard_while_it_looks() -> None:
    hot = HotKeys(every=0.1)
    with Cache(memory="8MiB", prefetch=hot, clock=FakeClock()) as cache:
        keys = ask(cache, *"abcdefgh")

        def read(number: int) -> None:
            with visit(f"visitor-{number}"):
                for turn in range(1000):
                    cache.get(keys[(turn + number) % len(keys)])

        threads = [threading.Thread(target=read, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        view = hot.pump()
        assert sum(one.heat for one in view.keys) == 4008.0
        assert sum(one.weight for one in view.edges) == 4 * 999 + 7
        assert hot.failures == 0


def test_then_is_told_what_it_is_told() -> None:
    class Other:
        def __init__(self) -> None:
            self.said: list[object] = []

        def start(self, cache: Any) -> None:
            self.said.append("start")

        def visited(self, key: Key, again: Any = None) -> None:
            self.said.append(key)

        def close(self) -> None:
            self.said.append("close")

    other = Other()
    with Cache(memory="8MiB", prefetch=HotKeys(threaded=False, then=other)) as cache:
        (a,) = ask(cache, "a")
        ask(cache, "a")
    assert other.said[:3] == ["start", a, a]
    assert "close" in other.said


@pytest.mark.parametrize("every", [0.0, 61.0, float("nan"), True])
def test_what_cannot_be_is_refused(every: float) -> None:
    with pytest.raises(SettingsError):
        HotKeys(every=every)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError):
        HotKeys(otlp="nowhere")


def test_one_watcher_has_one_cache(cache: Cache) -> None:
    with HotKeys(cache, threaded=False) as hot, pytest.raises(SettingsError):
        hot.start(cache)
