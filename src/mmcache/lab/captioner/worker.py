"""One variant in a process of its own, so that its memory is its own: JSON lines in, JSON lines out."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from mmcache.lab.captioner.model import AT_REST, QUESTION, Captioner
from mmcache.model.errors import AssetError


class Worker:
    """The other end: starts the process, asks it, ends it."""

    def __init__(self, variant: str, folder: Path) -> None:
        self.variant = variant
        command = [sys.executable, "-W", "ignore", "-m", "mmcache.lab.captioner.worker", variant, str(folder)]
        self._log = (folder / f"{variant}.log").open("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def ready(self) -> None:
        """Wait until its models are loaded. Raises `AssetError`."""
        self._read()

    def ask(self, **request: Any) -> dict[str, Any]:
        """One request, one answer. Raises `AssetError` when the process has died."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise AssetError(f"the captioner {self.variant} ended: {self._log.read()[-2000:]}")
        found: dict[str, Any] = json.loads(line)
        if "missing" in found:
            raise AssetError(found["missing"])
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._log.close()


def serve(variant: str, folder: Path) -> None:
    """Answer until the input ends."""
    try:
        captioner = Captioner(variant, folder / variant, threads=1)
    except AssetError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        return
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_done(captioner, json.loads(line))), flush=True)
    captioner.close()


def _done(captioner: Captioner, request: dict[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "reset":
            captioner.reset()
            return {}
        case "answer":
            picture = Path(request["picture"]).read_bytes()
            started = time.perf_counter()
            said, _ = captioner.answer(picture, request["question"])
            return {"said": said, "ms": 1000 * (time.perf_counter() - started)}
        case "exact":
            return {"apart": _apart(captioner, Path(request["picture"]).read_bytes(), request["question"])}
    return {
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "encoded": captioner.encoded,
        "read": captioner.read,
    }


def _apart(captioner: Captioner, picture: bytes, question: str) -> float:
    """Largest difference of a logit, from stored keys and values against computed ones."""
    assert captioner.variant in AT_REST
    asked = captioner.language.encode(QUESTION.format(question=question))
    captioner.block(picture)
    stored = captioner.language.extend(asked, captioner.block(picture))[0]
    computed = captioner.language.extend(asked, captioner.staged(picture))[0]
    return float((stored - computed).abs().max())


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
