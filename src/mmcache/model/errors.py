"""The one error tree. Every error says what happened and what to do next; causes are chained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class MMCacheError(Exception):
    """Base of every error that mmcache raises itself."""


class InvalidInputError(MMCacheError, ValueError):
    """The input has no canonical content (truncated, animated, NaN, a decompression bomb…)."""


class UnversionedModelError(MMCacheError, TypeError):
    """A callable without a version was given where a `Signature` is needed."""


class UnsupportedValueError(MMCacheError, TypeError):
    """The value holds something that cannot be stored without pickling."""


class CodecError(MMCacheError, ValueError):
    """A codec got a spec or bytes that it cannot handle."""


class CorruptFrameError(MMCacheError):
    """Bytes at rest fail their checksum, their bounds or their header."""


class FormatVersionError(MMCacheError):
    """A file was written by a newer version of mmcache."""


class TierError(MMCacheError):
    """A tier could not serve: disk full, folder read-only, connection lost…"""


class TierClosedError(TierError):
    """The tier or the cache was used after `close()`."""


class ArenaError(MMCacheError):
    """The page arena is full, or was given an array or a page list that it cannot take."""


class SettingsError(MMCacheError, ValueError):
    """A setting has a value that cannot be used."""


class UnknownPluginError(SettingsError):
    """No plug-in of that name is registered."""


class SnapshotError(MMCacheError):
    """A snapshot file is unreadable, of another version, or of another signature."""


class IntegrityError(MMCacheError):
    """`check_integrity()` found two parts of the cache that disagree: a bug of ours."""


class RetrievalError(MMCacheError):
    """A hop of a retrieval failed: an encoder or the vector store, named in `hop`; the cause is chained."""

    def __init__(self, hop: str, message: str) -> None:
        super().__init__(message)
        self.hop = hop


class AssetError(MMCacheError):
    """A packaged weight or media file of the lab is missing, or is not the pinned one."""


class StreamLostError(MMCacheError, RuntimeError):
    """Whoever computed a stream that others had joined gave up."""


class RolloutError(MMCacheError):
    """A rollout does not exist, is damaged, or cannot be switched that way."""


class RolloutConflictError(RolloutError):
    """Somebody else switched it first; nothing was changed."""


class SyncError(MMCacheError):
    """Database changes cannot be followed: the broker refuses, or the mapping does not fit what it sends."""


class PoisonError(SyncError, ValueError):
    """A message that is no change event, or none that can be understood.

    tables: of which it may be, by the names that the mapping may give them; key: the row's key, by column, if known.
    """

    def __init__(self, message: str, *, tables: Sequence[str] = (), key: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.tables, self.key = tuple(tables), key


class ProxyError(MMCacheError):
    """The proxy refuses a request, or cannot answer it; says so in OpenAI's form of an error."""

    def __init__(self, message: str, *, status: int = 400, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class UpstreamError(ProxyError):
    """The server behind the proxy could not be reached, broke off, or sent nonsense."""

    def __init__(self, message: str, *, status: int = 502, code: str = "upstream") -> None:
        super().__init__(message, status=status, code=code)


class DashboardError(MMCacheError):
    """The dashboard's store cannot be opened, read or written; or what it was asked makes no sense."""

    def __init__(self, message: str, *, status: int = 500, code: str = "store") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class TracerError(MMCacheError):
    """A process cannot be traced: no privilege, no kernel support, no such process, or nothing in it to look at."""


class ScaleError(MMCacheError):
    """A cluster cannot be made, reached or changed as was asked."""


class KubernetesError(ScaleError):
    """The API server refuses, or cannot be reached. code: of HTTP; 0 = there was no answer."""

    def __init__(self, message: str, *, code: int = 0) -> None:
        super().__init__(message)
        self.code = code
