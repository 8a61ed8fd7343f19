"""`valkey.conf` of a node: everything but its address and its secrets."""

from __future__ import annotations

from mmcache.operator.resource import Wish
from mmcache.scale.conf import directives


def valkey_conf(wish: Wish) -> str:
    """For Valkey 7.2 and later, and Redis 7."""
    pods = wish.pods
    told = directives(wish.cluster.memory_bytes, pods.node_timeout_seconds * 1000, chosen=pods.config)
    # Who may connect, a NetworkPolicy says, and the password.
    return "\n".join(["protected-mode no", *told]) + "\n"
