"""Traces: what requests were made of, as digests, so that a miss can be held against an earlier hit.

A trace holds no content: digests keyed with the realm's secret, version strings, and whatever the caller adds under
`parts`. Write them for a sample of requests; `mmcache explain TRACE` names the component that moved.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from blake3 import blake3

from mmcache.forks import Lock
from mmcache.keys.drift.statistics import write_private
from mmcache.keys.framing import framed
from mmcache.model.errors import FormatVersionError, InvalidInputError

FORMAT = 1
MARK = b'{"mmcache_trace":'
"""How every line begins."""
MOST_LINE = 1 << 20
MOST_FILE = 1 << 28

COMPONENTS = (
    "tenant", "namespace", "modality", "decoder", "content", "region", "tokenizer", "tokens", "preprocess",
    "statistics", "model", "lora", "quantisation", "dtype", "device", "schema", "function", "storage",
)  # fmt: skip
"""All that a key is made of, causes before what follows from them."""
_FIELDS = {"model": "model_version", "schema": "schema_hash"}
"""Components that `Signature` calls otherwise."""


class Trace(msgspec.Struct, frozen=True, omit_defaults=False, rename={"format": "mmcache_trace"}):
    """One request. All digests are hex."""

    format: int
    when: float
    """Unix seconds."""
    source: str
    """What stays the same while components move: a digest of the encoded bytes, or of a name that the caller has."""
    outcome: str
    """`hit (tier)` or `miss (reason)`, as `Explanation.verdict`."""
    key: str
    components: dict[str, str]
    """By the names in `COMPONENTS`, those that are set; and `parts`: further ones of the caller's."""

    @property
    def hit(self) -> bool:
        """Whether it was answered from the cache."""
        return self.outcome.startswith("hit")


def make_trace(
    *,
    when: float,
    source: str,
    outcome: str,
    key: str,
    signature: Mapping[str, str],
    tenant: str,
    namespace: str,
    content: str,
    region: str = "",
    statistics: str = "",
    tokens: str = "",
    parts: Mapping[str, str] | None = None,
) -> Trace:
    """A trace of these. `parts` are named `part:NAME`. Empty components are left out."""
    fields = {name: signature.get(_FIELDS.get(name, name), "") for name in COMPONENTS}
    fields |= {"tenant": tenant, "namespace": namespace, "content": content, "region": region}
    fields |= {"statistics": statistics, "tokens": tokens}
    fields |= {f"part:{name}": value for name, value in (parts or {}).items()}
    return Trace(FORMAT, when, source, outcome, key, {name: str(value) for name, value in fields.items() if value})


def digest_tokens(ids: Iterable[int], salt: bytes) -> str:
    """32 hex digits over token ids, keyed with 32 bytes of the realm: short texts could be guessed from plain ones."""
    raw = b"".join(int(one).to_bytes(8, "little", signed=True) for one in ids)
    return blake3(framed("tokens", raw), key=salt).hexdigest()[:32]


class TraceLog:
    """Appends traces to a file of JSON lines (mode 0600), at most `most` lines: then the older half goes.

    Safe for the threads of a process, and for processes: a line is one write in append mode. Each process counts what
    it found and what it wrote, so several may leave `most` lines each; when two shorten it at once, lines may be lost.
    """

    def __init__(self, path: str | os.PathLike[str], *, most: int = 10_000) -> None:
        if most < 2:
            raise InvalidInputError(f"a trace log keeps at least 2 lines, not {most}")
        self._path, self._most = Path(path), most
        self._lock = Lock()
        self._lines = -1

    def write(self, trace: Trace) -> None:
        """Add one. Raises `OSError`."""
        line = msgspec.json.encode(trace) + b"\n"
        with self._lock:
            if self._lines < 0:
                self._lines = _line_count(self._path)
            if self._lines >= self._most:
                self._lines = self._shorten()
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
            self._lines += 1

    def _shorten(self) -> int:
        with suppress(FileNotFoundError):  # somebody took it away: begin anew
            kept = self._path.read_bytes().splitlines(keepends=True)[-(self._most // 2) :]
            write_private(self._path, b"".join(kept))
            return len(kept)
        return 0


def _line_count(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.read_bytes().count(b"\n")
    return 0


def is_trace(path: Path) -> bool:
    """Whether `path` begins as a trace does: as JSON lines, one JSON object, or a list of them."""
    try:
        with path.open("rb") as file:
            head = file.read(256).lstrip(b"[ \t\r\n")
    except OSError:
        return False
    return head.replace(b" ", b"").replace(b"\n", b"").startswith(MARK)


def read_traces(path: Path) -> list[Trace]:
    """All of a file: JSON lines, or one JSON list. A last line that was cut off is left out.

    Raises `InvalidInputError` for what is no trace, `FormatVersionError` for a newer one.
    """
    try:
        if path.stat().st_size > MOST_FILE:
            raise InvalidInputError(f"{path} has more than {MOST_FILE} bytes; cut out the part to explain")
        data = path.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"cannot read the trace {path}: {error.strerror or error}") from error
    if data.lstrip()[:1] == b"[":
        return [_one(line, path, n) for n, line in enumerate(_elements(data, path), start=1)]
    lines = data.split(b"\n")
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(_one(line, path, number))
        except InvalidInputError:
            if number < len(lines) or not found:
                raise
    return found


def _elements(data: bytes, path: Path) -> list[bytes]:
    try:
        return [bytes(each) for each in msgspec.json.decode(data, type=list[msgspec.Raw])]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInputError(f"{path} is no trace: {error}") from error


class _Versioned(msgspec.Struct, rename={"format": "mmcache_trace"}):
    format: int


def _one(line: bytes, path: Path, number: int) -> Trace:
    try:
        version = msgspec.json.decode(line, type=_Versioned).format
        if version > FORMAT:
            raise FormatVersionError(f"{path} is a trace of format {version}, newer than {FORMAT}; upgrade mmcache")
        return msgspec.json.decode(line, type=Trace)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInputError(f"{path}, entry {number}, is no trace: {error}") from error
