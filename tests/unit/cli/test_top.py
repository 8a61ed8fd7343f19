"""`mmcache top` printed once, its checks of what it reads, and what it draws at any size."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.unit.cli.top_world import REASONS, answers, dashboard

from mmcache.cli import main, top_feed
from mmcache.cli.output import Exit
from mmcache.cli.top_feed import (
    Cause,
    Causes,
    Feed,
    HotKey,
    Keys,
    Line,
    Ratio,
    Reasons,
    Saved,
    Snapshot,
    Tier,
    Tiers,
)
from mmcache.cli.top_view import Look, draw, printed
from mmcache.model.errors import DashboardError, SettingsError

EVIL = "x\x1b[2J\x07\u202e\x00y"


def test_printed_once_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    with dashboard(answers()) as (address, asked):
        assert main(["top", "--from", address, "--by", "instance", "--until", "2026-09-24T02:45Z"]) == Exit.DONE
    out = capsys.readouterr().out
    unwrapped = " ".join(out.split())
    for words in (
        "02:45:00 UTC, last 15 min, by instance", "hit ratio", "73 %", "why the hit ratio fell",
        "70 % since 02:20:00 UTC, 20 110 more misses: Other", "model_version was v1, is v2", "stale-lease",
        "saved 84 min of compute, 7.0 GiB, 3.49 USD avoided", "768.0 MiB of 1.0 GiB", "812 evicted", "no instance",
        "90 %",
    ):  # fmt: skip
        assert words in unwrapped, words
    assert "\x1b" not in out
    assert all(query["to"] == ["1790217900.000"] and query["from"] == ["1790217000.000"] for query in asked)
    assert [query["by"] for query in asked if "by" in query] == [["instance"]]


def test_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with dashboard(answers(EVIL)) as (address, _):
        assert main(["top", "--from", f"{address}/", "--json"]) == Exit.DONE
    found = json.loads(capsys.readouterr().out)
    assert found["causes"]["causes"][0]["share"] == 0.7
    assert found["by"] == "tenant"
    assert set(found["reasons"]["reasons"]) == set(REASONS)


def test_names_from_outside_are_shown_and_never_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    with dashboard(answers(EVIL)) as (address, _):
        assert main(["top", "--from", address, "--once"]) == Exit.DONE
    out = capsys.readouterr().out
    assert all(one.isprintable() or one == "\n" for one in out)
    assert "\\u001b[2J" in out


def test_what_a_dashboard_cannot_give_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    with dashboard({"ratio": answers()["ratio"], "causes": {"causes": []}}) as (address, _):
        assert main(["top", "--from", address, "--once"]) == Exit.DONE
    out = capsys.readouterr().out
    assert "nothing fell" in out
    assert "tiers" not in out


def test_without_a_dashboard_it_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        assert main(["top", "--from", f"http://127.0.0.1:{taken.getsockname()[1]}", "--once"]) == Exit.FAILED
    assert "start `mmcache dashboard`" in capsys.readouterr().err


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"step": "x"}', b"[" * 100_000, b"\xff"])
def test_another_server_is_told_apart(body: bytes) -> None:
    with dashboard({"ratio": body}) as (address, _), pytest.raises(DashboardError, match="no dashboard"):
        Feed(address).read("tenant", 0.0, 15.0)


@contextmanager
def raw(answer: bytes) -> Iterator[str]:
    """Who answers anything with these bytes."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            with suppress(OSError):  # it has heard enough
                self.request.sendall(answer)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 302 Found\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n", "with 302"),
        (b"HTTP/1.1 301 Moved\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", "with 301"),
        (b"HTTP/1.1 500 \x1b[2J\x1b]0;owned\x07\r\ncontent-length: 0\r\n\r\n", "with 500"),
        (b"\x1b[2J\x1b]0;owned\x07\r\n\r\n", "no dashboard answers"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n{}", "is no dashboard"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 3000, "more than 2000 bytes"),
        (b"", "no dashboard answers"),
    ],
)
def test_a_server_that_means_no_good(
    answer: bytes, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top_feed, "MOST_BYTES", 2000)
    with raw(answer) as address:
        assert main(["top", "--from", address, "--once"]) == Exit.FAILED
    told = capsys.readouterr().err
    assert words in told
    assert all(one.isprintable() or one == "\n" for one in told)


def test_numbers_that_are_absurd() -> None:
    huge = 1e308
    line = Ratio(1.0, [], [Line("x", [huge] * 3, [-huge] * 3, [huge, -huge, huge, huge])])
    found = Snapshot(
        1e9, 15.0, "tenant", line, line, Reasons([], {"a": [huge, huge], "b": [-1.0]}), Saved(huge, huge, huge, "x"),
        Tiers([Tier("i", "t", [huge], huge, [huge, huge]), Tier("i", "t", [-huge], 1e-300, [])]),
        Keys([HotKey("k", hits=huge, misses=huge)]),
        Causes([Cause("c", "t", huge, huge, huge), Cause("c", "", -1.0, 1.0, -huge)]),
    )  # fmt: skip
    for wide in (False, True):
        assert len(draw(Look("http://x", wide=wide, snapshot=found), 80, 24)) == 24
    assert printed(Look("http://x", snapshot=found), 40)


def test_a_server_without_its_api() -> None:
    with dashboard({}) as (address, _), pytest.raises(DashboardError, match="is it a dashboard"):
        Feed(address).read("tenant", 0.0, 15.0)


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "ftp://x", "localhost:4318", "http://", "http://u:p@x", "http://x:port", "http://[",
                "http://x/?q"],
)  # fmt: skip
def test_only_http_is_read(address: str) -> None:
    with pytest.raises(SettingsError):
        Feed(address)


@pytest.mark.parametrize("words", [["--until", "yesterday"], ["--from", "nowhere"]])
def test_settings_that_make_no_sense(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", *words]) == Exit.FAILED


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--help"]) == Exit.DONE
    assert "mmcache top --from" in capsys.readouterr().out.split("Example:")[1]


def snapshot(canned: dict[str, Any]) -> Snapshot:
    with dashboard(canned) as (address, _):
        return Feed(address).read("tenant", 900.0, 15.0)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (100, 30), (40, 10), (20, 4), (1, 1)])
def test_it_fits(width: int, height: int, plain: bool, wide: bool) -> None:
    look = Look(
        "http://127.0.0.1:4318", wide=wide, plain=plain, snapshot=snapshot(answers("日本語" * 20)), trouble="gone"
    )
    lines = draw(look, width, height)
    assert len(lines) <= height
    assert all(cell_len(line.plain) <= width and line.plain.count("\n") == 0 for line in lines)
    if plain and not wide:
        assert not set("".join(line.plain for line in lines)) & set("▁▂▃▄▅▆▇█░")


def test_eighty_by_twenty_four_shows_every_part() -> None:
    look = Look("http://127.0.0.1:4318", snapshot=snapshot(answers()))
    text = "\n".join(line.plain for line in draw(look, 80, 24))
    for words in ("hit ratio", "batch", "why the hit ratio fell", "Other traffic", "Another signature", "misses",
                  "stale-lease", "saved", "tiers", "hottest keys", "q quit"):  # fmt: skip
        assert words in text, words


def test_reasons_over_time_shows_all_eleven() -> None:
    look = Look("http://127.0.0.1:4318", wide=True, snapshot=snapshot(answers()))
    text = "\n".join(line.plain for line in draw(look, 80, 24))
    assert all(reason in text for reason in REASONS)


@given(
    st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=300), st.text(), st.floats(0, 1e15), st.integers(1, 300),
    st.integers(1, 80),
)  # fmt: skip
def test_whatever_comes_fits_and_is_printable(
    ratios: list[float | None], name: str, number: float, width: int, height: int
) -> None:
    line = Line(name, [number], [number / 3], ratios)
    found = Snapshot(
        1e9, 15.0, "tenant", Ratio(1.0, [], [line]), Ratio(1.0, [], [line, line]),
        keys=Keys([HotKey(name, name, name, number, number)]),
    )  # fmt: skip
    for lines in (
        draw(Look("http://x", snapshot=found), width, height),
        printed(Look("http://x", snapshot=found), width),
    ):
        assert all(cell_len(one.plain) <= width and (one.plain.isprintable() or not one.plain) for one in lines)
