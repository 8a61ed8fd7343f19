"""`mmcache serve` as a process, in front of a real server, asked by the real client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("uvloop")
httpx = pytest.importorskip("httpx")
openai = pytest.importorskip("openai")

from tests.unit.server.upstream import Asked, Upstream, reply, served  # noqa: E402

from mmcache.cli.app import run  # noqa: E402
from mmcache.server.asgi import Send  # noqa: E402

EMBEDDINGS, CHAT = "/v1/embeddings", "/v1/chat/completions"
ADMIN = {"authorization": "Bearer the admin's long token"}


async def embed(asked: Asked, send: Send) -> None:
    """Three numbers a text, which tell the text apart."""
    wanted = json.loads(asked.body)
    texts = [wanted["input"]] if isinstance(wanted["input"], str) else wanted["input"]
    data = [
        {"object": "embedding", "index": place, "embedding": [float(len(text)), float(sum(map(ord, text))), 0.5]}
        for place, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
    await reply(send, 200, {"object": "list", "data": data, "model": wanted["model"], "usage": usage})


def chunk(text: str | None, reason: str | None = None) -> bytes:
    """An event of a streamed answer."""
    delta = {"role": "assistant", "content": text} if text is not None else {}
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "small", "choices": [choice]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


@pytest.fixture
def upstream() -> Iterator[tuple[Upstream, str]]:
    app = Upstream()
    app.on(EMBEDDINGS, embed)
    with served(app) as address:
        yield app, address


class Process:
    """The proxy, running."""

    def __init__(self, *options: str, cwd: Path) -> None:
        environment = os.environ | {"ADMIN": "the admin's long token", "MMCACHE_ROOT": str(cwd / "cache")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mmcache.cli", "serve", "--port", "0", "--json", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=environment,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.told = json.loads(line)
        self.address: str = self.told["address"]
        self.lines: list[dict[str, Any]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(json.loads(line))

    def until(self, event: str) -> dict[str, Any]:
        """The next line of the log that tells of `event`."""
        while True:
            for place, line in enumerate(self.lines):
                if line.get("event") == event:
                    del self.lines[: place + 1]
                    return line
            assert self.process.poll() is None or self._reading.is_alive(), self.lines
            threading.Event().wait(0.02)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(30)


@contextmanager
def serving(*options: str, cwd: Path) -> Iterator[Process]:
    process = Process(*options, cwd=cwd)
    try:
        yield process
    finally:
        process.process.kill()
        process.process.communicate()


def test_what_is_hot_is_told_by_its_folder(upstream: tuple[Upstream, str], tmp_path: Path, capsys: Any) -> None:
    _, behind = upstream
    with serving("--upstream", behind, cwd=tmp_path) as process:
        deadline = time.monotonic() + 60
        found: dict[str, Any] = {"keys": []}
        while len(found["keys"]) < 2 and time.monotonic() < deadline:
            for text in ("a", "b"):
                headers = {"authorization": "Bearer sk-one", "x-mmcache-session": "visitor"}
                sent = {"model": "small", "input": text}
                httpx.post(process.address + EMBEDDINGS, json=sent, headers=headers, timeout=30)
            told = run(["hot", "--once", "--json", "--root", str(tmp_path / "cache")])
            said = json.loads(capsys.readouterr().out)
            found = said if told == 0 else found
            threading.Event().wait(0.1)
        assert [key["modality"] for key in found["keys"]] == ["text", "text"]
        assert process.end() == 0


def test_from_the_first_request_to_a_hit_after_a_restart(upstream: tuple[Upstream, str], tmp_path: Path) -> None:
    app, behind = upstream
    root = str(tmp_path / "kept")

    def ask(proxy: Process, text: str, key: str = "sk-one") -> tuple[list[float], str]:
        with openai.OpenAI(base_url=proxy.told["openai_base_url"], api_key=key, max_retries=0) as client:
            raw = client.embeddings.with_raw_response.create(model="small", input=text, encoding_format="float")
            return raw.parse().data[0].embedding, raw.headers["x-mmcache"]

    with serving("--upstream", behind, "--root", root, cwd=tmp_path) as proxy:
        first, told = ask(proxy, "a cat")
        assert told.startswith("miss")
        assert ask(proxy, "a cat")[1].startswith("hit")
        assert ask(proxy, "a cat", key="sk-two")[1].startswith("miss")
        with openai.OpenAI(base_url=proxy.told["openai_base_url"], api_key="sk-one") as client:
            assert [model.id for model in client.models.list()] == ["small", "large"]
        assert proxy.end() == 0
    assert app.count(EMBEDDINGS) == 2
    with serving("--upstream", behind, "--root", root, cwd=tmp_path) as proxy:
        again, told = ask(proxy, "a cat")
        assert told.startswith("hit")
        assert again == first == [5.0, float(sum(map(ord, "a cat"))), 0.5]
        app.refused.add(b"Bearer sk-two")
        with pytest.raises(openai.AuthenticationError):
            ask(proxy, "a cat", key="sk-two")
        assert proxy.end(signal.SIGINT) == 0
    assert app.count(EMBEDDINGS) == 2
    with serving("--upstream", behind, "--root", root, "--version", "2", cwd=tmp_path) as proxy:
        assert ask(proxy, "a cat")[1].startswith("miss")


def test_a_stream_under_way_is_finished_before_the_end(upstream: tuple[Upstream, str], tmp_path: Path) -> None:
    app, behind = upstream
    go = threading.Event()

    async def stream(asked: Asked, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": chunk("one"), "more_body": True})
        await asyncio.to_thread(go.wait, 20)
        await send({"type": "http.response.body", "body": chunk(" two") + chunk(None, "stop"), "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    app.on(CHAT, stream)
    with serving("--upstream", behind, cwd=tmp_path) as proxy:
        with openai.OpenAI(base_url=proxy.told["openai_base_url"], api_key="k", max_retries=0) as client:
            events = client.chat.completions.create(
                model="small", messages=[{"role": "user", "content": "count"}], temperature=0, stream=True
            )
            assert next(events).choices[0].delta.content == "one"
            proxy.process.send_signal(signal.SIGTERM)
            assert proxy.until("draining")["in_flight"] == 1
            while True:  # the port closes
                try:
                    httpx.get(f"{proxy.address}/healthz")
                except httpx.TransportError:
                    break
            go.set()
            assert [event.choices[0].delta.content for event in events] == [" two", None]
        assert proxy.process.wait(20) == 0


def test_it_ends_also_where_nobody_reads_its_log(upstream: tuple[Upstream, str], tmp_path: Path) -> None:
    _, behind = upstream
    command = [sys.executable, "-m", "mmcache.cli", "serve", "--port", "0", "--json", "--upstream", behind]
    reading, writing = os.pipe()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=writing, text=True, env=os.environ | {"MMCACHE_ROOT": str(tmp_path)}
    ) as process:
        os.close(writing)
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        os.close(reading)
        try:
            assert httpx.get(f"{told['address']}/healthz").status_code == 200
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_an_end_that_takes_too_long_is_cut(upstream: tuple[Upstream, str], tmp_path: Path) -> None:
    app, behind = upstream

    async def never(asked: Asked, send: Send) -> None:
        await asked.read()
        while (await asked.receive())["type"] != "http.disconnect":
            pass

    never.streams = True  # type: ignore[attr-defined]
    app.on("/never", never)
    config = tmp_path / "mmcache.toml"
    config.write_text("[server]\ndrain_seconds = 1\n")
    with serving("--upstream", behind, "--config", str(config), cwd=tmp_path) as proxy:
        asking = threading.Thread(target=lambda: _ignored(f"{proxy.address}/never"), daemon=True)
        asking.start()
        while not app.count("/never"):
            threading.Event().wait(0.02)
        assert proxy.end() == 0


def _ignored(address: str) -> None:
    with suppress(httpx.TransportError):
        httpx.get(address, timeout=30)


def test_the_configuration_is_read_anew(upstream: tuple[Upstream, str], tmp_path: Path) -> None:
    _, behind = upstream
    config = tmp_path / "mmcache.toml"
    config.write_text(f'[server]\nadmin_token_env = "ADMIN"\n[upstream]\nurl = "{behind}"\n')

    def outcome(proxy: Process) -> str:
        body = {"model": "small", "input": "a"}
        answer = httpx.post(f"{proxy.address}{EMBEDDINGS}", json=body, headers={"authorization": "Bearer k"})
        assert answer.status_code == 200
        found: str = answer.headers["x-mmcache"].partition(";")[0]
        return found

    with serving("--config", str(config), cwd=tmp_path) as proxy:
        assert [outcome(proxy), outcome(proxy)] == ["miss", "hit"]
        config.write_text(config.read_text() + f'[routes."{EMBEDDINGS}"]\nmode = "off"\n[cache]\nmemory = "1MiB"\n')
        proxy.process.send_signal(signal.SIGHUP)
        done = proxy.until("reloaded")
        assert (done["changed"], done["needs_restart"]) == ("routes", "cache")
        assert outcome(proxy) == "pass"
        config.write_text("[server]\nprot = 1\n")
        proxy.process.send_signal(signal.SIGHUP)
        assert "has no prot" in proxy.until("not reloaded")["error"]
        assert outcome(proxy) == "pass"
        config.write_text(f'[server]\nadmin_token_env = "ADMIN"\n[upstream]\nurl = "{behind}"\n')
        assert httpx.post(f"{proxy.address}/mmcache/reload", headers=ADMIN).json()["changed"] == ["routes"]
        assert outcome(proxy) == "hit"
        status = httpx.get(f"{proxy.address}/mmcache/status", headers=ADMIN).json()
        assert status["routes"][EMBEDDINGS]["hit"]["count"] == 2
        assert proxy.end() == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "say what stands behind the proxy"),
        (("--upstream", "localhost:8000"), "http://host:port"),
        (("--upstream", "http://a/v1"), "without /v1"),
        (("--upstream", "http://a", "--port", "99999"), "a port is between"),
        (("--upstream", "http://a", "--host", "192.0.2.1"), "cannot listen at 192.0.2.1"),
        (("--config", "nothing.toml"), "cannot read the configuration"),
    ],
)
def test_what_cannot_work_is_said_at_once(
    options: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MMCACHE_ROOT", str(tmp_path / "cache"))
    assert run(["serve", *options]) == 3
    assert told in capsys.readouterr().err
