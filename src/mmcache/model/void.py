"""`VoidKey`: what takes a key's place while nobody can say what the key would be."""

from __future__ import annotations

import os

from mmcache.model.event import MissReason
from mmcache.model.key import PART_BYTES, Key


class VoidKey(Key):
    """A key under which nothing is found or stored: what it rests on cannot be told now, so its caller computes.

    Its digest is random, so that it equals no other key.
    """

    reason: MissReason

    @classmethod
    def of(cls, scope: bytes, reason: MissReason) -> VoidKey:
        """A new one. reason: why the lookup is going to miss."""
        key = cls(scope, os.urandom(PART_BYTES))
        key.reason = reason
        return key
