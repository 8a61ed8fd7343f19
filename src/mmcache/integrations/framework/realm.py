"""`Realm`: whose entries a component reads and writes, and which cache it finds again in another process."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.util import Finalize
from typing import Any

from mmcache.cache import Cache
from mmcache.forks import Lock
from mmcache.model.errors import SettingsError
from mmcache.model.event import Failed

TenantOption = str | Callable[[], str | None] | None
"""A name; or a function that is asked at every call (None = nobody can say: nothing is looked up or stored); None = the
cache's own tenant."""


class Realm:
    """A cache, and the tenant and namespace in it."""

    fleeting = False
    """A worker process holds it, which its pool may kill as soon as the work is handed back."""

    def __init__(self, cache: Cache, tenant: TenantOption = None, namespace: str | None = None) -> None:
        if not isinstance(cache, Cache):
            raise SettingsError(f"cache is an mmcache.Cache, not {type(cache).__name__}")
        if tenant is not None and not callable(tenant) and not (isinstance(tenant, str) and tenant):
            raise SettingsError(f"tenant is a name, a function that tells one, or None, not {tenant!r:.60}")
        if namespace is not None and not (isinstance(namespace, str) and namespace):
            raise SettingsError(f"namespace is a name or None, not {namespace!r:.60}")
        self.cache, self._tenant = cache, tenant
        self.namespace = cache.namespace if namespace is None else namespace

    def tenant(self) -> str | None:
        """Of this call; None where nobody can say, which is told as a `Failed` event: then nothing may be shared."""
        if not callable(self._tenant):
            return self.cache.tenant if self._tenant is None else self._tenant
        try:
            found = self._tenant()
        except Exception as error:  # noqa: BLE001 - a plug-in; and no failure of ours fails a call
            self.failed(f"the tenant cannot be told ({type(error).__name__}); nothing was looked up or stored")
            return None
        if isinstance(found, str) and found:
            return found
        self.failed("the tenant was not told; nothing was looked up or stored")
        return None

    def failed(self, detail: str) -> None:
        """Say that a call went on without the cache."""
        self.cache.events.emit(Failed("door", detail))

    def computed(self) -> None:
        """Something was computed and stored; what the death of this process would lose is written."""
        if self.fleeting:
            self.cache.flush()

    def __reduce__(self) -> tuple[Callable[..., Realm], tuple[Any, ...]]:
        """For frameworks that send components to worker processes: there, the same folder is opened again.

        Not a folder whose secret or encryption key is in this process only: there, a worker's cache is in its memory.
        """
        cache = self.cache
        own = any(cache.scopes.chain(modality).seals for modality in ("text", "image"))
        known = cache.root is not None and (cache.root / "realm.key").exists() and not own
        root = str(cache.root) if known else None
        return _reopened, (root, cache.tenant, cache.namespace, self._tenant, self.namespace)


_opened: dict[tuple[str | None, str, str], Cache] = {}
_opening = Lock()


def _reopened(root: str | None, tenant: str, namespace: str, asked: TenantOption, own_namespace: str) -> Realm:
    """A memory-only cache comes back empty. Codecs and limits are the defaults; other codecs are other keys."""
    with _opening:
        place = root, tenant, namespace
        if place not in _opened:
            cache = _opened[place] = Cache(root, tenant=tenant, namespace=namespace)
            Finalize(None, cache.close, exitpriority=10)  # worker processes run no `atexit`
        realm = Realm(_opened[place], asked, own_namespace)
        realm.fleeting = parent_process() is not None
        return realm
