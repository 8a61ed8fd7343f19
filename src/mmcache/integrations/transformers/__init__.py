"""transformers: a cache in the vision tower of a model, in place.

>>> handle = cache_vision_tower(model, cache)   # doctest: +SKIP
>>> model.generate(**inputs)                    # pictures seen before do not reach the tower
>>> handle.remove()

See docs/how-to/transformers.md for what is in the key, when the cache steps aside, and what "equal" means.
"""

from mmcache.integrations.transformers.door import Asides, CachedTower, cache_vision_tower
from mmcache.integrations.transformers.layouts import Grid, Layout, Sizes, Stacked

__all__ = ["Asides", "CachedTower", "Grid", "Layout", "Sizes", "Stacked", "cache_vision_tower"]
