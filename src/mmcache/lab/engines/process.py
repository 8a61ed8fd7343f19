"""A vLLM engine as a process of its own, in the environment that `make vllm-venv` makes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import mmcache
from mmcache.model.errors import AssetError

Kind = Literal["none", "stock", "example", "lmcache", "ours"]
"""`none`: no cache at all; `stock`: vLLM as it comes; `example`: its ECExampleConnector; `lmcache`: LMCache's encoder
engine; `ours`: MMCacheConnector."""

VENV = ".venv-vllm"
START_SECONDS = 300


def interpreter() -> Path:
    """Python of the engines' environment, in the repository or where we are. Raises `AssetError`."""
    source = Path(mmcache.__file__).resolve()
    for folder in (*source.parents[2:3], Path.cwd()):
        python = folder / VENV / "bin" / "python"
        if python.exists() and any((folder / VENV).glob("lib/python*/site-packages/vllm/__init__.py")):
            return python
    raise AssetError("vLLM is not installed here; run `make vllm-venv` (x86-64 Linux, 3.5 GB)")


def environment(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """All that an engine's process sees of the environment."""
    home.mkdir(parents=True, exist_ok=True)
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": str(home), "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parent / "startup"), "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING", "DO_NOT_TRACK": "1", **(more or {}),
    }  # fmt: skip


def model(folder: Path) -> Path:
    """The little LLaVA, made where it is not there yet. Raises `AssetError`."""
    place = folder / "llava"
    if not (place / "processor_config.json").exists():
        made = subprocess.run(
            [str(interpreter()), "-m", "mmcache.lab.engines.llava", str(place)],
            env=environment(folder / "home"), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode:
            raise AssetError(f"the model could not be made: {made.stderr[-500:]}")
    return place


@dataclass(frozen=True)
class Answer:
    """What an engine said, and what it took."""

    ms: float
    tokens: tuple[int, ...]
    likely: tuple[dict[str, float], ...]
    """For each place the likeliest tokens and their log-probabilities."""
    encoded: int
    """How often the vision tower ran."""
    prefix: int
    """Prompt tokens that the engine's prefix cache had."""
    peak: int
    """Largest resident set so far, bytes."""

    def differs(self, other: Answer) -> float:
        """The largest difference of a log-probability; infinite where the tokens differ."""
        if self.tokens != other.tokens:
            return float("inf")
        pairs = zip(self.likely, other.likely, strict=True)
        return max(abs(mine.get(token, -99.0) - value) for mine, theirs in pairs for token, value in theirs.items())


@dataclass(frozen=True)
class Asking:
    """A request. `<image>` stands in `text`."""

    picture: Path | None
    text: str
    uuid: str | None = None
    salt: str | None = None


class Engine:
    """Started when it is entered, closed (or with `kill` ended at once) when it is left. Raises `AssetError`.

    store: folder of what the contender keeps. options: of our connector. flags: more of vLLM's. blocks: of 128 tokens,
    that the KV cache holds.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        folder: Path,
        store: Path,
        options: Mapping[str, Any] | None = None,
        flags: Mapping[str, Any] | None = None,
        blocks: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._given = {
            "kind": kind, "store": str(store), "options": dict(options or {}), "flags": dict(flags or {}),
            "blocks": blocks, "model": str(model(folder)),
        }  # fmt: skip
        self._log = folder / f"engine-{kind}.log"
        self._environment = environment(folder / "home", dict(variables or {}) | _variables(kind, store))
        self._process: subprocess.Popen[str] | None = None

    def launch(self) -> Self:
        """Start it without waiting: several load side by side. It must still be entered."""
        if self._process is None:
            with self._log.open("a") as log:
                self._process = subprocess.Popen(
                    [str(interpreter()), "-m", "mmcache.lab.engines.serving", json.dumps(self._given)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment,
                    cwd=self._log.parent,
                )  # fmt: skip
        return self

    def __enter__(self) -> Self:
        with ExitStack() as on_failure:
            on_failure.callback(self.kill)
            self.launch()._read()
            on_failure.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None and process.stdout is not None:
            process.stdin.close()
            try:
                process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self.__exit__()

    def ask(
        self,
        picture: Path | None,
        text: str,
        *,
        uuid: str | None = None,
        salt: str | None = None,
        tokens: int = 4,
    ) -> Answer:
        """One request; `<image>` stands in `text`. Raises `AssetError` with what the engine said."""
        return self.together([Asking(picture, text, uuid, salt)], tokens=tokens)[0]

    def together(self, requests: Sequence[Asking], *, tokens: int = 4) -> list[Answer]:
        """Requests at the same time; each has the latency and the encodings of all. Raises `AssetError`."""
        lines = [
            {"picture": each.picture and str(each.picture), "text": each.text, "uuid": each.uuid, "salt": each.salt}
            for each in requests
        ]
        return [
            Answer(
                found["ms"], tuple(found["tokens"]), tuple(found["likely"]), found["encoded"], found["prefix"],
                found["peak"],
            )
            for found in self._send({"do": "ask", "together": lines, "tokens": tokens})["answers"]
        ]  # fmt: skip

    def flush(self) -> None:
        """Return when what was encoded is stored."""
        self._send({"do": "flush"})

    def at_rest(self) -> dict[str, float]:
        """INT4's largest error as a share of its `bound`, the relative error, and bytes as a share of bfloat16's."""
        return self._send({"do": "at_rest"})

    def _send(self, line: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise AssetError(f"the engine is gone; its log is {self._log}") from error
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            last = self._log.read_text(errors="replace").strip().splitlines()[-1:] or [""]
            raise AssetError(f"the engine ended: {last[0][:300]} (log: {self._log})")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise AssetError(f"the engine says {found['error']}")
        return found


def _variables(kind: Kind, store: Path) -> dict[str, str]:
    """What a contender reads from the environment. LMCache's local disk is known to one of its objects only, so that
    neither another engine nor the next one would find anything: a folder as its remote store."""
    if kind != "lmcache":
        return {}
    return {
        "LMCACHE_LOCAL_CPU": "False", "LMCACHE_MAX_LOCAL_CPU_SIZE": "0.5", "LMCACHE_REMOTE_URL": f"fs://host:0{store}",
        "LMCACHE_REMOTE_SERDE": "naive",
    }  # fmt: skip
