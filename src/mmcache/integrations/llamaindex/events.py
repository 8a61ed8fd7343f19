"""What LlamaIndex's instrumentation is told: `CacheHitEvent`, `CacheMissEvent`. Counts and reasons, never content."""

from __future__ import annotations

from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events import BaseEvent

from mmcache.integrations.framework.results import Told
from mmcache.integrations.framework.vectors import Tallied

dispatcher = get_dispatcher(__name__)


class CacheHitEvent(BaseEvent):  # type: ignore[misc]
    """Something was answered from the cache: a call that the application did not pay for."""

    door: str
    """`query`, `text` or `image` (embeddings), `transformation`, `retriever`, `query engine`."""
    count: int = 1
    """Inputs."""
    saved_seconds: float = 0.0
    """What computing it had taken; 0 where it is not known."""

    @classmethod
    def class_name(cls) -> str:
        """As LlamaIndex names events."""
        return "CacheHitEvent"


class CacheMissEvent(BaseEvent):  # type: ignore[misc]
    """Something was computed, by whatever is behind the cache."""

    door: str
    count: int = 1
    reason: str = ""
    """A miss reason of the cache; `tenant`, `state`, `unidentified`: not looked up; `unstorable`: not kept."""

    @classmethod
    def class_name(cls) -> str:
        """As LlamaIndex names events."""
        return "CacheMissEvent"


def tell_embedded(door: str, tallied: Tallied) -> None:
    """Of a call for embeddings."""
    if tallied.hits:
        dispatcher.event(CacheHitEvent(door=door, count=tallied.hits))
    if tallied.misses:
        dispatcher.event(CacheMissEvent(door=door, count=tallied.misses))
    if tallied.bypassed:
        dispatcher.event(CacheMissEvent(door=door, count=tallied.bypassed, reason="unidentified"))


def tell(door: str, told: Told) -> None:
    """Of any other call."""
    if told.hit:
        dispatcher.event(CacheHitEvent(door=door, saved_seconds=told.saved))
    else:
        dispatcher.event(CacheMissEvent(door=door, reason=told.reason))
