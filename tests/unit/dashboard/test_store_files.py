"""The store's file: whose it is, what a restart finds, what is refused, what is set aside."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.unit.dashboard.store_world import HOUR_AGO, a_store, lookup, put, settled

from mmcache.dashboard import browse, overview
from mmcache.dashboard import store as store_module
from mmcache.dashboard.asking import Question
from mmcache.dashboard.rows import Window
from mmcache.dashboard.store import Store
from mmcache.model.errors import DashboardError, FormatVersionError, SettingsError
from mmcache.settings import DashboardSettings

WINDOW = Window(HOUR_AGO, HOUR_AGO + 3600)


def found(store: Store) -> list[tuple[str, str]]:
    rows = store.read(store.cursor(), lambda view: browse.newest(view, Question(WINDOW), 100))
    return [(row.tenant, str(row.attributes.get("note"))) for row in rows]


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "made" / "traces.duckdb"
    with a_store(path) as store:
        put(store, lookup())
        assert [stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()] == [0o600, 0o600]  # and its log
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_restart_finds_everything_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    one = lookup(HOUR_AGO, tenant="a")
    one.attributes["note"] = "kept"
    with a_store(path) as store:
        put(store, one)
    with a_store(path) as store:
        put(store, lookup(HOUR_AGO + 1, tenant="b"), one)  # the second was sent once more
        assert found(store) == [("b", "None"), ("a", "kept")]
    with a_store(path) as store:
        assert found(store) == [("b", "None"), ("a", "kept")]
        put(store, lookup(HOUR_AGO + 3400))
        settled(store)
        ratio = store.read(store.cursor(), lambda view: overview.ratio(view, Question(WINDOW), None, 12))
        assert sum(ratio["series"][0]["hits"]) == 3


def test_people_can_read_the_file_with_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    with a_store(path) as store:
        put(store, lookup(tenant="a", key="00000000000000ab"))
    with duckdb.connect(str(path), read_only=True) as connection:
        assert connection.execute("SELECT tenant, hit, key, service FROM seen").fetchall() == [
            ("a", True, "00000000000000ab", "mmcache")
        ]


def test_a_newer_format_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    with a_store(path) as store:
        put(store, lookup())
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE store SET version = 99")
    before = path.read_bytes()
    with pytest.raises(FormatVersionError, match="newer mmcache"):
        Store(DashboardSettings(str(path)))
    assert path.read_bytes() == before


def test_a_damaged_file_is_set_aside_and_a_new_one_begins(tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    with a_store(path) as store:
        put(store, *(lookup() for _ in range(50)))
    raw = bytearray(path.read_bytes())
    for at in range(4096, 12288, 64):  # both of its headers
        raw[at + 9] ^= 0xFF
    path.write_bytes(raw)
    notices: list[str] = []
    store = Store(DashboardSettings(str(path)), notices.append)
    try:
        assert found(store) == []
        put(store, lookup(tenant="new"))
        assert found(store) == [("new", "None")]
    finally:
        store.close()
    (aside,) = tmp_path.glob("traces.duckdb.damaged-*")
    assert aside.read_bytes() == bytes(raw)
    assert str(aside) in notices[0]


def test_a_file_that_is_no_store_is_never_touched(tmp_path: Path) -> None:
    text, other = tmp_path / "notes.txt", tmp_path / "other.duckdb"
    text.write_text("my notes, which are longer than twelve bytes")
    with duckdb.connect(str(other)) as connection:
        connection.execute("CREATE TABLE mine (x INTEGER)")
    for path in (text, other):
        before = path.read_bytes()
        with pytest.raises(DashboardError, match="left as it is"):
            Store(DashboardSettings(str(path)))
        assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == sorted([text, other])


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DashboardError, match="choose another --store"):
        Store(DashboardSettings(str(tmp_path / "file" / "traces.duckdb")))
    with pytest.raises(DashboardError, match="choose another --store"):
        Store(DashboardSettings(str(tmp_path)))


def test_another_process_that_has_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    program = (
        "import sys; from mmcache.dashboard.store import Store; from mmcache.settings import DashboardSettings;"
        f"store = Store(DashboardSettings({str(path)!r})); print('open', flush=True); sys.stdin.read(); store.close()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            with pytest.raises(DashboardError, match="another process has the store"):
                Store(DashboardSettings(str(path)))
        finally:
            process.kill()
    assert not list(tmp_path.glob("*damaged*"))
    with a_store(path):  # the dead let go of it
        pass


def test_after_a_fatal_error_it_is_opened_again_until_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = {"insert": 1, "opened": 2}
    for name in failing:
        real = getattr(store_module, name)

        def sometimes(*given: object, name: str = name, real: Any = real) -> Any:
            if failing[name]:
                failing[name] -= 1
                raise duckdb.FatalException("the disk is full")
            return real(*given)

        monkeypatch.setattr(store_module, name, sometimes)
    failing["opened"] = 0
    with a_store(tmp_path / "traces.duckdb") as store:
        failing["opened"] = 2
        for _ in range(3):
            with pytest.raises(DashboardError, match="cannot be written now"):
                put(store, lookup(tenant="a"))
        put(store, lookup(tenant="b"))
        assert found(store) == [("b", "None")]


def test_whatever_fails_between_two_transactions_the_writer_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = threading.Event()

    def fail(*_: object) -> None:
        tried.set()
        raise OSError("the log cannot be looked at")

    monkeypatch.setattr("mmcache.dashboard.retention.used", fail)
    with a_store() as store:
        put(store, lookup(tenant="a"))
        assert tried.wait(60)
        put(store, lookup(tenant="b"))
        assert {tenant for tenant, _ in found(store)} == {"a", "b"}


def test_a_clock_that_is_ahead_closes_nothing_that_others_still_send() -> None:
    now = time.time()
    with a_store() as store:
        put(store, lookup(now + 400, tenant="a"), lookup(now + 3400, tenant="ahead"))
        settled(store)
        assert store.between(lambda: store.slices.before(int(now) + 401)).result()


def test_clearing_forgets_texts_too(tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    with a_store(path) as store:
        put(store, lookup(tenant="secret-name"))
        assert store.clear().result() >= 0
        assert found(store) == []
        assert store.known.words["tenant"].find("secret-name") is None
        put(store, lookup(tenant="b"))
        assert found(store) == [("b", "None")]
    with a_store(path) as store:
        assert found(store) == [("b", "None")]


@pytest.mark.parametrize(
    "wrong",
    [{"limit_bytes": 5}, {"gpu_hour": -1.0}, {"admin_token": "short"}, {"readers": 0}, {"ingest_token": "ä" * 9}],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        DashboardSettings(**wrong)  # type: ignore[arg-type]


def test_an_unreadable_store_of_another_user_is_said(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    path = tmp_path / "traces.duckdb"
    with a_store(path):
        pass
    path.chmod(0)
    with pytest.raises(DashboardError, match="choose another --store"):
        Store(DashboardSettings(str(path)))
