"""Who hears of hits in memory: several at a time, each until it has heard enough."""

from __future__ import annotations

from mmcache.cache import Cache
from mmcache.model.key import Key


def test_all_who_want_to_hear_of_hits_do() -> None:
    with Cache(memory="1MiB") as cache:
        memory = cache._store.memory
        key = cache.key("a cat", modality="text", signature="encoder-1")
        cache.put(key, 1)
        one, other = list[Key](), list[Key]()
        memory.reads.hear(one.extend)
        memory.reads.hear(other.extend)
        cache.get(key)
        assert not one, "hits are looked at later"
        memory.maintain()
        memory.reads.unhear(one.extend)
        cache.peek(key)
        memory.maintain()
        memory.reads.unhear(one.extend)
        assert (one, other) == ([key], [key, key])
