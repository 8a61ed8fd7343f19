"""`Joint`: retrieval by a picture and words, each tenant's by itself; it fails nobody who would not fail without it."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

from mmcache.forks import Lock
from mmcache.integrations.framework.realm import Realm
from mmcache.integrations.framework.results import UnstorableError
from mmcache.integrations.framework.steady import Steady
from mmcache.integrations.framework.ways import by
from mmcache.keys.signing.facts import code_digest
from mmcache.keys.signing.functions import function_identity
from mmcache.model.errors import InvalidInputError, MMCacheError
from mmcache.model.signature import Signature
from mmcache.retrieval import Located, Retrieval

Models = tuple[Signature, Signature]
"""Of pictures, and of words."""
MOST_TENANTS = 256


def sought_by(search: Callable[..., Any]) -> str:
    """Which search function it is: its name, what it closes over, and its code."""
    code = getattr(search, "__code__", None)
    return f"{function_identity(search)} {code_digest(code) if isinstance(code, CodeType) else ''}".strip()


class UnkeptError(InvalidInputError):
    """Carries what was found past the cache."""

    def __init__(self, found: Any) -> None:
        super().__init__("what was found is handed out, and not kept")
        self.found = found


def kept(found: Any, freeze: Callable[[Any], str]) -> str:
    """`freeze(found)`. Raises `UnkeptError` for what would come back as something else."""
    try:
        return freeze(found)
    except (UnstorableError, TypeError, ValueError) as error:
        raise UnkeptError(found) from error


class Joint:
    """models: signatures of the model of pictures, and of that of words; their functions begin with the door's name.
    make: a tenant's `Retrieval` with models of these signatures. plain: the same lookup without a cache. thaw: what was
    found, from what is kept."""

    def __init__(
        self,
        realm: Realm,
        models: tuple[Steady[Signature], Steady[Signature]],
        make: Callable[[str, Models], Retrieval],
        plain: Callable[[Any, str | None, int], Any],
        thaw: Callable[[Any], Any],
    ) -> None:
        self._realm, self._models, self._make, self._plain, self._thaw = realm, models, make, plain, thaw
        self._lock = Lock()
        self._retrievals: dict[tuple[str, Models], Retrieval] = {}

    def locate(self, picture: Any, text: str | None, k: int) -> Located:
        """See `Retrieval.locate`. Where the cache fails, or nobody can say whose lookup it is, there are no hops."""
        tenant = self._realm.tenant()
        if tenant is not None:
            try:
                with by(self.models()[0].function.partition(" ")[0]):
                    located = self._retrieval(tenant).locate(picture, text, k)
                error = located.error
                cause = None if error is None else error.__cause__
                if isinstance(cause, MMCacheError):
                    raise cause
                value = None if located.value is None else self._thaw(located.value)
                return Located(value, located.hops, located.died, error)
            except UnkeptError as unkept:
                return Located(unkept.found, ())
            except MMCacheError as failure:
                self._realm.failed(f"went on without the cache: {type(failure).__name__}")
        return Located(self._plain(picture, text, k), ())

    def found(self, picture: Any, text: str | None, k: int) -> Any:
        """What is found. Raises what a model or store raises."""
        located = self.locate(picture, text, k)
        if located.error is not None:
            cause = located.error.__cause__
            raise cause if isinstance(cause, Exception) else located.error
        return located.value

    def models(self) -> Models:
        """The signatures of now. Raises `UnversionedModelError`."""
        return self._models[0].value(), self._models[1].value()

    def _retrieval(self, tenant: str) -> Retrieval:
        """What is remembered for near hits is this tenant's alone."""
        place = tenant, self.models()
        with self._lock:
            if place not in self._retrievals:
                if len(self._retrievals) >= MOST_TENANTS:
                    self._retrievals.pop(next(iter(self._retrievals)), None)
                self._retrievals[place] = self._make(*place)
            return self._retrievals[place]
