"""What a door holds in a cache: listed, and erased, by what its blocks are called."""

from __future__ import annotations

from collections.abc import Iterator

from mmcache.integrations.framework.realm import Realm
from mmcache.model.key import Key


def held(realm: Realm, tenant: str, model: str) -> Iterator[Key]:
    """Keys of this tenant and namespace whose signature names `model`, in any tier, each once."""
    cache = realm.cache
    cache.flush()
    seen: set[Key] = set()
    for tier in (cache._store.memory, *cache._store.lower):
        for one in tier.scan():
            if (one.tenant, one.namespace, one.model) == (tenant, realm.namespace, model) and one.key not in seen:
                seen.add(one.key)
                yield one.key


def erase(realm: Realm, tenant: str, model: str) -> int:
    """Drop them in every tier; how many were held."""
    return realm.cache.invalidate(list(held(realm, tenant, model)))
