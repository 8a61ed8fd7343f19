"""mmcache: an adaptive cache for multimodal inference.

Recognises what was computed before (the same picture re-encoded, a crop, the same text or speech, the same question in
other words) and returns the stored features or answers instead of computing them again. Start with `Cache`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mmcache.cache import Cache
    from mmcache.encoder import Encoder
    from mmcache.explain import Explanation
    from mmcache.keys.content import ContentOptions
    from mmcache.keys.region import Region
    from mmcache.model.errors import InvalidInputError, MMCacheError, UnsupportedValueError, UnversionedModelError
    from mmcache.model.event import MissReason
    from mmcache.model.key import Key
    from mmcache.model.signature import Signature
    from mmcache.rows import Row
    from mmcache.semantic.alias import Alias
    from mmcache.semantic.prompt import Prompt
    from mmcache.semantic.settings import Reply, Semantic
    from mmcache.settings import Settings, SharedSettings, Tenant
    from mmcache.stats import CacheStats
    from mmcache.visits import visit

_HOMES = {
    "Alias": "mmcache.semantic.alias",
    "Cache": "mmcache.cache",
    "CacheStats": "mmcache.stats",
    "ContentOptions": "mmcache.keys.content",
    "Encoder": "mmcache.encoder",
    "Explanation": "mmcache.explain",
    "InvalidInputError": "mmcache.model.errors",
    "Key": "mmcache.model.key",
    "MMCacheError": "mmcache.model.errors",
    "MissReason": "mmcache.model.event",
    "Prompt": "mmcache.semantic.prompt",
    "Region": "mmcache.keys.region",
    "Reply": "mmcache.semantic.settings",
    "Row": "mmcache.rows",
    "Semantic": "mmcache.semantic.settings",
    "Settings": "mmcache.settings",
    "SharedSettings": "mmcache.settings",
    "Signature": "mmcache.keys.signing",  # which teaches it to describe models
    "Tenant": "mmcache.settings",
    "UnsupportedValueError": "mmcache.model.errors",
    "UnversionedModelError": "mmcache.model.errors",
    "visit": "mmcache.visits",
}

__all__ = [
    "Alias",
    "Cache",
    "CacheStats",
    "ContentOptions",
    "Encoder",
    "Explanation",
    "InvalidInputError",
    "Key",
    "MMCacheError",
    "MissReason",
    "Prompt",
    "Region",
    "Reply",
    "Row",
    "Semantic",
    "Settings",
    "SharedSettings",
    "Signature",
    "Tenant",
    "UnsupportedValueError",
    "UnversionedModelError",
    "__version__",
    "visit",
]


def __getattr__(name: str) -> Any:
    # Lazily, so that `import mmcache` costs a few milliseconds even where only a submodule is needed.
    import importlib

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mmcache' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
