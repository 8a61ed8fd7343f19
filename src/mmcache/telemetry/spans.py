"""`Spans`: OpenTelemetry spans of what a cache does, for a sample of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import TracerProvider

    from mmcache.cache import Cache

Measured = Callable[[str, str, float, float, "Context"], object]
"""(`lookup` or `compute`, outcome, seconds, weight, context with its span: for exemplars)."""


class Spans:
    """An `Observer`. Starts at once; `close` ends it and makes what is pending.

    tracer_provider: None = OpenTelemetry's global one. sample: share of what has no parent that is recorded, 0…1; what
    runs inside a recording span always is, inside one that is not sampled never.
    measured: told of each lookup and computation that is recorded, in a thread of ours; never raises.
    """

    def __init__(
        self,
        cache: Cache,
        tracer_provider: TracerProvider | None = None,
        sample: float = 0.01,
        *,
        spans_per_second: float = 1000.0,
        measured: Measured | None = None,
    ) -> None:
        raise NotImplementedError

    @property
    def dropped(self) -> int:
        """Spans that were not made, for there were more than `spans_per_second`."""
        raise NotImplementedError

    def flush(self) -> None:
        """Return when what was recorded so far is with the provider's processors."""

    def close(self) -> None:
        """Observe no more; make what is pending. Idempotent. The provider is its owner's to close."""
