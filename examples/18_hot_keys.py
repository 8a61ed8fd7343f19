"""Which keys are hot, with which others, and for how long: watch a cache, and look at what the watcher sees."""

from mmcache import Cache
from mmcache.hotkeys import HotKeys
from mmcache.visits import visit

hot = HotKeys(threaded=False)  # with threads it looks every two seconds by itself; here it is pumped

# As the cache's `prefetch` it is told of every lookup and its session: visitors who come at once are told apart.
with Cache(memory="64MiB", prefetch=hot) as cache:
    embed = cache.wrap(lambda text: [float(len(text))], modality="text", signature="length-1", guard=False)
    for second in range(20):
        for name, pages in (("anna", ["shoes", "socks", "laces"]), ("ben", ["tea", "cup", "kettle"])):
            with visit(f"{name}-{second}"):
                for page in pages:
                    embed(page)
        view = hot.pump(1_000_000.0 + second)  # Unix seconds

    for one in view.keys:
        print(one.key, one.modality, f"score {one.score:.2f}", f"heat {one.heat:.1f}", one.tier, one.community)
    for edge in view.edges:
        print(view.keys[edge.source].key, "→", view.keys[edge.target].key, f"{edge.weight:.1f}")
    print(*view.communities, sep="\n")
    assert len(view.keys) == 6
    assert len(view.edges) == 4  # shoes → socks → laces, tea → cup → kettle; nothing between the two visitors
    assert len({one.community for one in view.keys} - {0}) == 2
