"""What other hosts say of the sources that answers rest on."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmcache.cache import Cache


def heard(cache: Cache, sources: Collection[bytes] | None) -> None:
    """They have changed; None = nobody knows which: then no answer of this folder is found any more.

    Written down also where this process asks nothing: others of its folder do. Raises `TierError`.
    """
    meaning = cache.__dict__.get("meaning")
    if meaning is not None:
        meaning.sources.heard(sources)
        return
    from mmcache.semantic.ledger import FILE, Ledger

    if cache.root is None or not (cache.root / FILE).exists():
        return
    ledger = Ledger(cache.root)
    try:
        if sources is None:
            ledger.renew()
        else:
            for source in sources:
                ledger.changed(source)
    finally:
        ledger.close()
