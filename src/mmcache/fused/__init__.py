"""Fused blocks: what a model made of one region of a picture and the words that looked there.

`triples.py` cuts a cross-attention map (pure functions), `blocks.py` stores a value per piece.
"""

from mmcache.fused.blocks import FusedBlock, FusedBlocks
from mmcache.fused.triples import Triple, triples

__all__ = ["FusedBlock", "FusedBlocks", "Triple", "triples"]
