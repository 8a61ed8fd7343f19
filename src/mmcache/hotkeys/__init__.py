"""Which keys are hot, with which others, and for how long: a watcher. It reads events, and acts through `Cache`.

>>> with Cache(root) as cache, HotKeys(cache) as hot:
...     serve(cache)
...     hot.view().keys[0].score
"""

from mmcache.hotkeys.scores import HotScores
from mmcache.hotkeys.view import HotView
from mmcache.hotkeys.watch import HotKeys

__all__ = ["HotKeys", "HotScores", "HotView"]
