"""What the plug-in file does: answers and findings of an agent, kept under the question and what they rest on."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from blake3 import blake3

from mmcache.cache import Cache
from mmcache.forks import Lock
from mmcache.keys.arguments import canonical_arguments
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.model.errors import MMCacheError, SettingsError
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.model.signature import Signature

PLUGIN_FILE = Path(__file__).with_name("mmcache_tool.py")
"""The file to copy into RAGFlow's `embedded_plugins/llm_tools`; a file `mmcache_tool.toml` beside it configures it."""
_SIGNATURE = Signature(function="mmcache.integrations.ragflow.tool", modality="text")
_MISSING = object()
LARGEST_CHARACTERS = 100_000
SETTLE_SECONDS = 600.0
"""An agent may have read what an answer rests on so long before it stores the answer."""


@dataclass(frozen=True)
class ToolSettings:
    """What `mmcache_tool.toml` may say."""

    root: str
    """The cache's folder."""
    tenant: str = "default"
    """Whose answers these are: everybody who can talk to the agent reads them."""
    version: str = "1"
    """Of the agent: its prompt and its models. Change it when they change."""
    remember: bool = False
    """Whether the model may store answers. What it is made to store, others are told: only where users are trusted."""
    ttl_seconds: float = 86_400.0
    memory: str = "64MiB"

    @classmethod
    def read(cls, file: Path) -> ToolSettings:
        """Raises `SettingsError`."""
        try:
            told = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SettingsError(f'cannot read {file}: {error}; it needs at least root = "/a/folder"') from error
        if unknown := told.keys() - {field.name for field in fields(cls)}:
            raise SettingsError(f"{file.name} has unknown settings: {', '.join(sorted(unknown))}")
        kinds = {"remember": bool, "ttl_seconds": int | float}
        wrong = [name for name, value in told.items() if not isinstance(value, kinds.get(name, str))]
        if wrong or not told.get("root"):
            raise SettingsError(f"{file.name}: {', '.join(wrong) or 'root'} is missing, or of another kind than it has")
        return cls(**told)


class Notes:
    """Of one agent. Every answer is a JSON text, also where something failed: an agent goes on without."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = Lock()
        self._opened: tuple[ToolSettings, Cache] | None = None

    def recall(self, question: Any) -> str:
        """`{"found": true, "answer": …, "sources": […]}`, or `{"found": false}`."""
        try:
            settings, cache = self._open()
            value = cache.get(_key(cache, settings, question), _MISSING)
            if value is _MISSING or value["editions"] != _editions(cache, value["sources"]):
                return _said(found=False)
        except MMCacheError as error:
            return self._failed("found", error)
        return _said(found=True, answer=value["answer"], sources=value["sources"])

    def remember(self, question: Any, answer: Any, sources: Any = "") -> str:
        """`{"stored": true}` or `{"stored": false, "reason": …}`."""
        try:
            settings, cache = self._open()
            if not settings.remember:
                return _said(stored=False, reason="remembering is switched off")
            if not isinstance(answer, str) or not answer.strip() or len(answer) > LARGEST_CHARACTERS:
                return _said(stored=False, reason="an answer is a text that is neither empty nor longer than 100000")
            names = _names(sources)
            editions = _editions(cache, names)
            if _newest(cache, editions) > cache.clock.wall() - SETTLE_SECONDS:
                return _said(stored=False, reason="what it rests on has just changed: it may be of before that")
            value = {"answer": answer, "sources": names, "editions": editions}
            return _said(stored=cache.put(_key(cache, settings, question), value, ttl=settings.ttl_seconds))
        except MMCacheError as error:
            return self._failed("stored", error)

    def close(self) -> None:
        """Write down what is pending."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[1].close()

    def _open(self) -> tuple[ToolSettings, Cache]:
        with self._lock:
            if self._opened is None:
                settings = ToolSettings.read(self._file)
                self._opened = settings, Cache(settings.root, memory=settings.memory, tenant=settings.tenant)
            return self._opened

    def _failed(self, name: str, error: MMCacheError) -> str:
        if self._opened is not None:
            self._opened[1].events.emit(Failed("ragflow", str(error)))
        return _said(**{name: False, "reason": str(error)})


def _key(cache: Cache, settings: ToolSettings, question: Any) -> Key:
    """Raises `SettingsError` for a question that is none."""
    if not isinstance(question, str) or not question.strip() or len(question) > LARGEST_CHARACTERS:
        raise SettingsError("a question is a text that is neither empty nor longer than 100000 characters")
    scope = cache.scopes.of(_SIGNATURE, settings.tenant, cache.namespace)
    told = canonical_arguments([question.strip(), settings.version])
    return Key(scope.digest, blake3(framed("note", told), key=scope.salt).digest(length=DIGEST_BYTES))


def _editions(cache: Cache, names: list[str]) -> bytes:
    return cache.meaning.editions([("document", name) for name in names])


def _newest(cache: Cache, editions: bytes) -> float:
    """Seconds since 1970 of the last change of any of them: an edition is when it began, in microseconds."""
    changed = editions[: len(editions) - len(_editions(cache, []))]
    starts = range(DIGEST_BYTES, len(changed), DIGEST_BYTES + 8)
    return max((int.from_bytes(changed[at : at + 8], "big") for at in starts), default=0) / 1e6


def _names(sources: Any) -> list[str]:
    """Ids of datasets and documents, from a list or a text with commas; sorted, each once."""
    parts = sources.split(",") if isinstance(sources, str) else sources if isinstance(sources, list) else [sources]
    if not all(isinstance(part, str) for part in parts):
        raise SettingsError("sources are ids of datasets or documents, with commas between them")
    return sorted({part.strip() for part in parts if part.strip()})


def _said(**fields: Any) -> str:
    return json.dumps(fields, ensure_ascii=False)
