"""Which state of an index a result is of: a version that the caller names, and an edition that writers move."""

from __future__ import annotations

from functools import partial
from typing import Any

from haystack import component, default_from_dict
from haystack.core.serialization import component_to_dict

from mmcache.cache import Cache
from mmcache.integrations.haystack.config import CacheConfig
from mmcache.integrations.haystack.door import Door, off_loop
from mmcache.keys.framing import framed
from mmcache.model.errors import InvalidInputError, SettingsError, TierError

VERSION = "index_version"
"""The input that says which version of an index a run asks."""
_COMMON = {"tenant": "haystack indexes", "namespace": "haystack indexes"}
"""Where writers say that an index changes, for readers of any tenant and namespace."""


def check_index(index: str | None, version: str | None) -> None:
    """Raises `SettingsError`."""
    for name, value in (("index", index), (VERSION, version)):
        if value is not None and (not isinstance(value, str) or not value):
            raise SettingsError(f"{name} is a string that is not empty, or None, not {value!r}")


def index_state(cache: Cache, index: str | None, version: Any, tenant: str, namespace: str) -> bytes:
    """What a key contains of an index. Raises `InvalidInputError` where nothing says which state it is in, and
    `TierError` where it is not known what writers have changed. tenant, namespace: where else it may be said."""
    if version is not None and (not isinstance(version, str) or not version):
        raise InvalidInputError(f"{VERSION} is a string that is not empty, not {version!r:.40}")
    if index is None and version is None:
        raise InvalidInputError(f"nothing says which version of the index this is: pass {VERSION}, or name the index")
    editions = b""
    if index is not None:
        for realm in (_COMMON, {"tenant": tenant, "namespace": namespace}):
            editions += framed("editions", cache.meaning.editions([("document", source(index))], **realm))
    return framed("index", (index or "").encode(), (version or "").encode(), editions)


def source(index: str) -> str:
    """The name under which an index is a source: `cache.changed("document", source(index))` says that it changed, to
    readers whose `CacheConfig` has the same tenant and namespace; an `IndexWriter` says so to all."""
    return f"haystack index {index}"


@component
class IndexWriter(Door):
    """In front of a `DocumentWriter` (or what else changes an index): whatever was retrieved from it is old then.

    writer: the component that writes. index: the name that `CachedRetriever(index=…)` has, too. It must reach the same
    cache; whose results they are (tenant, namespace) makes no difference. Raises `TierError` where the cache cannot be
    told, before anything is written: else old results would be served as new ones.
    """

    def __init__(self, writer: Any, index: str, cache: CacheConfig | Cache) -> None:
        self._set_up([writer], cache, None, False)
        check_index(index, None)
        self.writer, self.index = writer, index
        self._take_sockets(writer)

    def to_dict(self) -> dict[str, Any]:
        """For pipeline files. Raises `SerializationError` for a `Cache` that is no `CacheConfig`."""
        data = self._to_dict(writer=component_to_dict(self.writer, "writer"), index=self.index)
        for realm in "tenant", "per_tenant":
            del data["init_parameters"][realm]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> IndexWriter:
        """Opens nothing: `warm_up` does."""
        made: IndexWriter = default_from_dict(cls, data)
        return made

    def run(self, **inputs: Any) -> dict[str, Any]:
        """See the wrapped component."""
        self.warm_up()
        return self._flow(inputs, self.writer.run)

    async def run_async(self, **inputs: Any) -> dict[str, Any]:
        """The async twin."""
        await self.warm_up_async()
        return await off_loop(partial(self._flow, inputs), self.writer)

    def _flow(self, inputs: dict[str, Any], run: Any) -> dict[str, Any]:
        inputs.pop("cache_tenant", None)
        self._tell()
        try:
            outputs: dict[str, Any] = run(**inputs)
        finally:
            self._tell()
        return outputs

    def _tell(self) -> None:
        cache = self._open()
        if cache is None:
            raise TierError(f"the cache cannot be told that index {self.index!r} changes; see the log for why")
        cache.changed("document", source(self.index), **_COMMON)
