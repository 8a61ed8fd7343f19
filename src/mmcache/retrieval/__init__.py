"""Retrieval by picture and words: a cache in front of a vector store. Start with `Retrieval`.

`lookup.py` is the flow, `queries.py` remembers what was searched for, `tolerance.py` says how near is near enough,
`locator.py` where a lookup died.
"""

from mmcache.keys.joint import Alignment
from mmcache.retrieval.locator import Hop, HopName, Located, Locator
from mmcache.retrieval.lookup import Retrieval
from mmcache.retrieval.observed import RetrievalReport
from mmcache.retrieval.tolerance import Observation, Tolerance

__all__ = [
    "Alignment",
    "Hop",
    "HopName",
    "Located",
    "Locator",
    "Observation",
    "Retrieval",
    "RetrievalReport",
    "Tolerance",
]
