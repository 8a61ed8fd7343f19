"""What `mmcache serve` costs beside its own server with a constant answer, and beside asking the upstream directly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from mmcache.lab.bench import main
from mmcache.lab.http_load import body_of, closed_loop, connect, exchange, one_by_one, request, streams
from mmcache.lab.table import Progress, Result, Row, Table, percentile
from mmcache.model.errors import AssetError

EMBEDDINGS, CHAT = "/v1/embeddings", "/v1/chat/completions"
CONNECTIONS = 32
PAUSE_SECONDS = 0.005
"""Before each question whose latency counts: what the last one stores is stored by then, as where a model computes."""
TEXT = "what is the cat on the mat in the picture doing, and what else is in the room?"
SHARE, RATE, ADDED_MS, SLOWED = 0.7, 5000.0, 1.0, 1.5
"""Of a constant body's rate; hits a second; most that a miss takes longer; hits while slow clients hold streams."""
HITS: dict[str, dict[str, Any]] = {
    "base64": {"input": TEXT, "encoding_format": "base64"},
    "numbers": {"input": TEXT},
    "32 base64": {"input": [f"{n} {TEXT}" for n in range(32)], "encoding_format": "base64"},
}


@contextmanager
def process(arguments: Sequence[str], core: int | None) -> Iterator[tuple[int, str]]:
    """A server of ours in a process of its own, on one core: its id, and the first line that it prints."""
    started = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        if core is not None:
            os.sched_setaffinity(started.pid, {core})
        assert started.stdout is not None
        line = started.stdout.readline()
        if not line:
            raise AssetError(f"{' '.join(arguments[:4])} did not start")
        yield started.pid, line
    finally:
        started.kill()  # nothing is left to be stored
        started.wait()


def cpu_seconds(pid: int) -> float:
    """Of all its threads."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def ask(path: str, **fields: Any) -> bytes:
    """A request to the model of the benchmark."""
    return request(path, json.dumps({"model": "m"} | fields).encode())


class Proxy(Table):
    """Rates of one process on one core, and latencies."""

    name = "bench-proxy"
    title = "What does the proxy cost, and how quick is a hit through it?"
    remark = (
        "`constant` is a bare ASGI application under the very server and settings of `mmcache serve`, which reads the "
        "request and sends the bytes of that hit. One process each, on one core; the generator and the upstream share "
        "the other. The upstream embeds at once, so that the latency added is all ours; an answer is sent before it "
        "is stored, and the next question whose latency counts comes 5 ms later, when that is done."
    )

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """See `Table.run`. Seeds only repeat."""
        cores = sorted(os.sched_getaffinity(0))
        served, others = (cores[0], cores[-1]) if len(cores) > 1 else (None, None)
        rows: dict[str, list[float]] = {}
        with tempfile.TemporaryDirectory() as name, ExitStack() as ends:
            folder, here = Path(name), Path(__file__).parent
            peer = [sys.executable, str(here / "_proxy_peer.py")]
            _, line = ends.enter_context(process([*peer, "upstream", "0"], others))
            upstream = int(line)
            config = folder / "serve.toml"
            config.write_text("[server]\naccess_log = false\n")
            serve = [sys.executable, "-m", "mmcache.cli", "serve", "--port", "0", "--json", "--config", str(config)]
            address = ["--upstream", f"http://127.0.0.1:{upstream}", "--root", str(folder / "root")]
            pid, line = ends.enter_context(process([*serve, *address], served))
            port = int(json.loads(line)["address"].rpartition(":")[2])
            if others is not None:
                ends.callback(os.sched_setaffinity, 0, set(cores))
                os.sched_setaffinity(0, {others})
            for seed in seeds:
                for what, fields in HITS.items():
                    self._rates(what, ask(EMBEDDINGS, **fields), (pid, port), peer, served, folder, quick, rows)
                    progress(f"hits: {what}", 1, 1)
                self._misses(seed, upstream, (pid, port), 300 if quick else 2000, rows)
                progress("misses", 1, 1)
                self._streams(seed, upstream, port, 200 if quick else 2000, rows)
                progress("streams", 1, 1)
        return Result(self.name, quick, tuple(seeds), REAL, SIMULATED, tuple(shown(rows, 200 if quick else 2000)))

    def _rates(
        self, what: str, asked: bytes, proxy: tuple[int, int], peer: Sequence[str], core: int | None, folder: Path,
        quick: bool, rows: dict[str, list[float]],
    ) -> None:  # fmt: skip
        pid, port = proxy
        for _ in range(3):
            answer = exchange(port, asked)
        if b"x-mmcache: hit" not in answer:
            raise AssetError("the third repeat of a request was no hit")
        (folder / "body").write_bytes(body_of(answer))
        seconds, rounds = (0.4, 3) if quick else (1.5, 5)
        with process([*peer, "constant", "0", str(folder / "body")], core) as (constant_pid, line):
            for _ in range(rounds):
                found = {}
                for name, (number, where) in {"constant": (constant_pid, int(line)), "hit": (pid, port)}.items():
                    before = cpu_seconds(number)
                    rate, took = closed_loop(where, [asked], CONNECTIONS, seconds)
                    spent = (cpu_seconds(number) - before) / len(took)
                    found[name] = rate, spent
                    rows.setdefault(f"{what}/{name}/rate", []).append(rate)
                    rows.setdefault(f"{what}/{name}/cpu", []).append(spent * 1e6)
                rows.setdefault(f"{what}/ratio", []).append(found["hit"][0] / found["constant"][0])
                rows.setdefault(f"{what}/cpu ratio", []).append(found["constant"][1] / found["hit"][1])

    def _misses(
        self, seed: int, upstream: int, proxy: tuple[int, int], count: int, rows: dict[str, list[float]]
    ) -> None:
        """Three ways of asking for what nobody has asked before, by turns."""
        pid, port = proxy
        took: dict[str, list[float]] = {"direct": [], "miss": [], "pass": []}
        spent = dict.fromkeys(took, 0.0)
        for turn in range(10):
            for way in took if turn % 2 else reversed(took):
                texts = [f"{seed} {turn} {number} {way} {TEXT}" for number in range(count // 10)]
                more = {"late_chunking": False} if way == "pass" else {}
                asks = [ask(EMBEDDINGS, input=text, encoding_format="base64", **more) for text in texts]
                before = cpu_seconds(pid)
                took[way] += one_by_one(upstream if way == "direct" else port, asks, PAUSE_SECONDS)
                spent[way] += cpu_seconds(pid) - before
        for way in ("miss", "pass"):
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                added = percentile(took[way], share) - percentile(took["direct"], share)
                rows.setdefault(f"{way}/{name}", []).append(added * 1e3)
            rows.setdefault(f"{way}/cpu", []).append((spent[way] - spent["direct"]) / len(took[way]) * 1e6)
        rows.setdefault("direct/p50", []).append(percentile(took["direct"], 0.5) * 1e3)

    def _streams(self, seed: int, upstream: int, port: int, count: int, rows: dict[str, list[float]]) -> None:
        """All open at once for `n * pause` seconds; and hits while some clients do not read theirs."""
        pieces = {"n": 10, "size": 40, "pause": 0.5}

        def chats(way: str, number: int, pieces: dict[str, Any]) -> list[bytes]:
            return [
                ask(CHAT, temperature=0, stream=True, messages=[
                    {"role": "user", "content": f"{seed}-{way}-{each} {json.dumps(pieces)}"}
                ])
                for each in range(number)
            ]  # fmt: skip

        direct = streams(upstream, chats("direct", count, pieces))
        ours = streams(port, chats("ours", count, pieces))
        rows.setdefault("streams/whole", []).append(len(ours))
        rows.setdefault("streams/ratio", []).append(percentile(ours, 0.99) / percentile(direct, 0.99))
        hit = ask(EMBEDDINGS, **HITS["base64"])
        exchange(port, hit)
        alone = percentile(closed_loop(port, [hit], 1, 1.0)[1], 0.5)
        slow = [connect(port, 4096) for _ in range(50)]
        large = {"n": 40, "size": 25_000, "pause": 0.05}
        for one, asked in zip(slow, chats("slow", len(slow), large), strict=True):
            one.sendall(asked)  # and reads nothing of its megabyte
        closed_loop(port, [hit], 1, 4.0)
        beside = percentile(closed_loop(port, [hit], 1, 1.0)[1], 0.5)
        for one in slow:
            one.close()
        rows.setdefault("slow/ratio", []).append(beside / alone)


REAL = (
    "`mmcache serve` with its default settings (a folder on disk, an API key, authority asked), without access log; "
    f"{CONNECTIONS} connections for rates, one for latencies; vectors of 384 float32",
    "LiteLLM's proxy is not measured here: it needs packages that this environment has not; see the table `gateways`",
)
SIMULATED = ("the upstream: an ASGI application that embeds by no model, and streams chats of so many pieces",)


def shown(rows: dict[str, list[float]], streams_open: int) -> Iterator[Row]:
    """All figures, with their targets."""
    for what in HITS:
        for name in ("constant", "hit"):
            target = RATE if (what, name) == ("base64", "hit") else None
            yield Row.of(
                f"{what}/{name}/rate", f"{name}: {what}, answers a second", "1/s", "higher",
                rows[f"{what}/{name}/rate"], target=target,
            )  # fmt: skip
            yield Row.of(
                f"{what}/{name}/cpu", f"{name}: {what}, CPU an answer", "µs", "lower", rows[f"{what}/{name}/cpu"]
            )
        first = what == "base64"
        yield Row.of(
            f"{what}/ratio", f"{what}: rate of hits ÷ of a constant", "x", "higher", rows[f"{what}/ratio"],
            target=SHARE if first else None,
        )  # fmt: skip
        # Where the generator is the slower one, rates are alike whatever the servers cost.
        yield Row.of(
            f"{what}/cpu ratio", f"{what}: CPU of a constant ÷ of a hit", "x", "higher", rows[f"{what}/cpu ratio"],
            target=SHARE if first else None,
        )  # fmt: skip
    yield Row.of("direct/p50", "asking the upstream directly, P50", "ms", "lower", rows["direct/p50"])
    for way, words in {"miss": "a miss, stored", "pass": "a request that is not cached"}.items():
        target = ADDED_MS if way == "miss" else None
        yield Row.of(f"{way}/p50", f"{words}: added to P50", "ms", "lower", rows[f"{way}/p50"], target=target)
        yield Row.of(f"{way}/p99", f"{words}: added to P99", "ms", "lower", rows[f"{way}/p99"])
        yield Row.of(f"{way}/cpu", f"{words}: CPU, storing included", "µs", "lower", rows[f"{way}/cpu"])
    yield Row.of(
        "streams/whole", f"of {streams_open} streams at once, whole", "streams", "higher", rows["streams/whole"],
        target=streams_open,
    )  # fmt: skip
    yield Row.of("streams/ratio", "time until 99 % had ended ÷ directly", "x", "lower", rows["streams/ratio"])
    yield Row.of(
        "slow/ratio", "hits' P50 while 50 clients do not read ÷ without them", "x", "lower", rows["slow/ratio"],
        target=SLOWED,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(Proxy()))
