"""Outlets: a file a process for `mmcache hot`, and OTLP logs; what fails is dropped and counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE, until

from mmcache import Cache
from mmcache.cli.app import run
from mmcache.cli.hot import look
from mmcache.hotkeys import HotKeys
from mmcache.hotkeys.outlets import DEAD_SECONDS, OLD_SECONDS, HotFile, HotSender, as_logs, published, sweep
from mmcache.hotkeys.view import EVENT_NAME, MOST_BYTES, Community, HotEdge, HotKey, HotView, decode, encode

HOSTILE = "evil\x1b[2J\u202ename\n"


def view(*keys: HotKey, at: float = 1000.0, instance: str = "host-1") -> HotView:
    edges = [HotEdge(0, 1, 2.0)] if len(keys) > 1 else []
    return HotView(at, "mmcache", instance, list(keys), edges, [Community(3, 2, 2.0, "living", at)], 10, 20, 0.01)


A = HotKey("a" * 16, 3.0, {"heat": 7.0}, 7.0, "text", "default", "memory", 2048, 12.0, 0.9, 3)
B = HotKey("b" * 16, 2.0, {"heat": 3.0}, 3.0, "image", HOSTILE, "disk", 0, None, None, 0)


class Receiver:
    """Keeps what is posted."""

    def __init__(self, status: int = 200, location: str = "") -> None:
        self.got: list[tuple[str, dict[str, str], Any]] = []
        self.hold = threading.Event()
        self.hold.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.got.append((self.path, headers, json.loads(body)))
                receiver.hold.wait(PATIENCE)
                self.send_response(status)
                if location:
                    self.send_header("location", location)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def do_GET(self) -> None:
                receiver.got.append((self.path, {}, None))
                self.send_error(404)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=[0.01])
        self.thread.start()

    def close(self) -> None:
        self.hold.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    try:
        yield one
    finally:
        one.close()


def test_a_view_is_one_log_record(receiver: Receiver) -> None:
    sender = HotSender(receiver.address + "/", {"authorization": "Bearer t"})
    sent = view(A, B)
    assert sender.send(sent)
    ((path, headers, body),) = receiver.got
    assert path == "/v1/logs"
    assert headers["authorization"] == "Bearer t"
    assert headers["content-type"] == "application/json"
    (resource,) = body["resourceLogs"]
    told = {one["key"]: one["value"]["stringValue"] for one in resource["resource"]["attributes"]}
    assert told == {"service.name": "mmcache", "service.instance.id": "host-1"}
    (record,) = resource["scopeLogs"][0]["logRecords"]
    assert record["eventName"] == EVENT_NAME
    assert record["timeUnixNano"] == str(1000 * 10**9)
    assert decode(record["body"]["stringValue"]) == sent


def test_it_is_what_otlp_says() -> None:
    pytest.importorskip("opentelemetry.proto", reason="OTLP's messages are not here")
    from google.protobuf import json_format
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    read = json_format.Parse(json.dumps(as_logs(view(A))), ExportLogsServiceRequest())
    assert read.resource_logs[0].scope_logs[0].log_records[0].event_name == EVENT_NAME


def test_it_is_what_the_dashboard_takes() -> None:
    pytest.importorskip("opentelemetry.proto", reason="OTLP's messages are not here")
    pytest.importorskip("duckdb", reason="DuckDB is not here")
    from google.protobuf import json_format
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    from mmcache.dashboard.graph_taken import views_of

    with Cache(memory="8MiB") as cache, HotKeys(cache, threaded=False, service="shop") as hot:
        for text in "abab":
            cache.get_or_compute(cache.key(text, modality="text", signature="s"), lambda: b"v")
        seen = hot.pump(1000.0)
    read = views_of(json_format.Parse(json.dumps(as_logs(seen)), ExportLogsServiceRequest()))
    assert (read.others, read.refused) == (0, {})
    (taken,) = read.views
    assert [one.key for one in taken.keys] == [one.key for one in seen.keys]
    assert (taken.service, len(taken.edges)) == ("shop", 2)


def test_what_waits_is_replaced_and_counted(receiver: Receiver) -> None:
    receiver.hold.clear()
    sender = HotSender(receiver.address)
    try:
        sender.offer(view(A, at=1.0))
        until(lambda: len(receiver.got) == 1, "sent")
        for at in range(2, 12):
            sender.offer(view(A, at=float(at)))
        receiver.hold.set()
        until(lambda: sender.sent == 2, "sent the last one")
        assert sender.lost == 9
        assert receiver.got[1][2]["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["timeUnixNano"] == str(11 * 10**9)
    finally:
        sender.close()
    sender.offer(view(A))  # nobody sends it any more
    assert sender.sent == 2


def test_a_receiver_that_is_down_or_refuses_costs_a_count() -> None:
    one = Receiver(status=503)
    try:
        sender = HotSender(one.address)
        assert not sender.send(view(A))
    finally:
        one.close()
    assert not sender.send(view(A))
    assert (sender.sent, sender.lost) == (0, 2)


def test_who_proves_himself_is_not_sent_elsewhere(receiver: Receiver) -> None:
    for status in (301, 302, 307, 308):
        one = Receiver(status, f"{receiver.address}/elsewhere")
        try:
            assert not HotSender(one.address, {"authorization": "Bearer t"}).send(view(A))
        finally:
            one.close()
    assert receiver.got == []


def test_the_watcher_sends_what_it_sees(receiver: Receiver) -> None:
    with Cache(memory="8MiB") as cache, HotKeys(cache, threaded=False, otlp=receiver.address, service="shop") as hot:
        cache.get_or_compute(cache.key("a", modality="text", signature="s"), lambda: b"v")
        seen = hot.pump(1000.0)
        until(lambda: len(receiver.got) == 1, "sent")
    record = receiver.got[0][2]["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    assert decode(record["body"]["stringValue"]) == seen
    assert seen.service == "shop"


def gone() -> int:
    """The pid of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def write(root: Path, name: str, raw: bytes, age: float = 0.0) -> Path:
    folder = root / "hot"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(raw)
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_the_files_of_the_dead_are_swept_and_no_others(tmp_path: Path) -> None:
    raw, dead, here = encode(view(A)), gone(), os.getpid()
    going = [
        write(tmp_path, f"hot-{dead}.json", raw, 2 * DEAD_SECONDS),
        write(tmp_path, f".hot-{dead}-1-x.draft", raw, 2 * DEAD_SECONDS),
        write(tmp_path, f"hot-{here}-9.json", raw, 2 * OLD_SECONDS),
    ]
    staying = [
        write(tmp_path, f"hot-{here}.json", raw, 2 * DEAD_SECONDS),
        write(tmp_path, f"hot-{dead}-2.json", raw),  # a container's, which is not seen here
        write(tmp_path, "notes.txt", raw, 2 * OLD_SECONDS),
    ]
    views, damaged = published(tmp_path)
    assert (len(views), damaged) == (2, [])
    assert sweep(tmp_path) == len(going)
    assert not any(path.exists() for path in going)
    assert all(path.exists() for path in staying)
    assert sweep(tmp_path / "nothing") == 0


def test_what_is_no_view_is_said_and_shown_by_nobody(tmp_path: Path) -> None:
    write(tmp_path, "hot-1.json", b"{")
    write(tmp_path, "hot-2.json", b" " * (MOST_BYTES + 1))
    (tmp_path / "hot" / "hot-3.json").symlink_to(write(tmp_path, "other", encode(view(A))))
    os.mkfifo(tmp_path / "hot" / "hot-4.json")
    views, damaged = published(tmp_path)
    assert views == []
    assert [one.partition(":")[0] for one in damaged] == [f"hot-{number}.json" for number in (1, 2, 3, 4)]


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    file = HotFile(tmp_path)
    assert file.write(view(A))
    file.close()
    assert not file.write(view(A))
    assert list((tmp_path / "hot").iterdir()) == []


ENDS = """
import sys
from mmcache import Cache
from mmcache.hotkeys import HotKeys

hot = HotKeys(Cache(sys.argv[1]), threaded=False)
hot.pump()
print(*hot._file.path.parent.iterdir())
"""


def test_a_process_that_closes_nothing_leaves_no_file(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ENDS, tmp_path], capture_output=True, text=True, check=True)
    assert "hot-" in done.stdout
    assert list((tmp_path / "hot").iterdir()) == []


def test_hot_merges_processes_and_says_which(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, f"hot-{os.getpid()}.json", encode(view(A, B)))
    cooler = HotKey("a" * 16, 1.0, {}, 1.0, "text", "default", "", 0, None, None, 7)
    write(tmp_path, f"hot-{os.getppid()}.json", encode(view(cooler, instance="host-2")))
    assert run(["hot", "--root", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["instance"] for one in found["processes"]] == ["host-1", "host-2"]
    first, second = found["keys"]
    assert (first["key"], first["heat"], first["score"], first["tier"]) == ("a" * 16, 8.0, 3.0, "memory")
    assert (first["communities"], first["processes"]) == (["1:3", "2:7"], [1, 2])
    assert second["tenant"] == HOSTILE
    assert [one["process"] for one in found["communities"]] == [1, 2]
    assert len(look(tmp_path, 1).keys) == 1


def test_hot_prints_names_that_cannot_move_the_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, f"hot-{os.getpid()}.json", encode(view(A, B, instance=HOSTILE)))
    assert run(["hot", "--root", str(tmp_path), "--once"]) == 0
    said = capsys.readouterr().out
    assert "a" * 16 in said
    assert "12.0 h 90 %" in said
    assert "memory" in said
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert r"evil\u001b" in said


def test_hot_says_what_to_do_where_nobody_says_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hot", "--root", str(tmp_path)]) == 3
    assert "HotKeys(cache)" in capsys.readouterr().err
    write(tmp_path, f"hot-{os.getpid()}.json", b"{")
    assert run(["hot", "--root", str(tmp_path), "--json"]) == 3
    assert f"hot-{os.getpid()}.json" in capsys.readouterr().err


def test_the_folder_stays_one_that_audits_understand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Cache(tmp_path, memory="8MiB") as cache, HotKeys(cache, threaded=False) as hot:
        key = cache.key("a", modality="text", signature="s", tenant="acme")
        cache.get_or_compute(key, lambda: b"v")
        hot.pump(1000.0)
        cache.flush()
        for command in (["verify"], ["stats"], ["purge", "--tenant", "acme"]):
            assert run([command[0], "--root", str(tmp_path), *command[1:]]) == 0, capsys.readouterr().err
        assert len(list((tmp_path / "hot").iterdir())) == 1
