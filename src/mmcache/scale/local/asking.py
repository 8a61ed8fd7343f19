"""What a command refuses to ask for, since it would be lost for nothing."""

from __future__ import annotations

from pathlib import Path

from mmcache.model.errors import ScaleError
from mmcache.scale.local.handle import Handle
from mmcache.scale.local.versions import can_follow, find
from mmcache.scale.spec import ClusterSpec


def refusal(handle: Handle, spec: ClusterSpec) -> str | None:
    """Why this spec is not to be written down, and what to do; None where it may. Raises `ScaleError`."""
    return _unreadable(handle, spec) or _too_small(handle, spec)


def _unreadable(handle: Handle, spec: ClusterSpec) -> str | None:
    if not spec.version:
        return None
    wanted = find(spec.version)
    for name in handle.files.member_names():
        file = handle.files.member(name)
        if file is None or not file.path or file.leaving:
            continue
        try:
            old = find(str(Path(file.path)))
        except ScaleError:  # it was removed while it runs
            continue
        if not can_follow(wanted, old):
            return (
                f"a {wanted} cannot read what a {old} wrote, so that the blocks would be lost: to start anew with it, "
                f"mmcache cluster down, then up --server '{spec.version}'"
            )
    return None


def _too_small(handle: Handle, spec: ClusterSpec) -> str | None:
    old = handle.require().spec
    if spec.allow_eviction or spec.memory_bytes >= old.memory_bytes:
        return None
    for name, node in handle.look().nodes.items():
        if node.used_bytes > spec.memory_bytes:
            return (
                f"node {name} holds {node.used_bytes >> 20} MiB, which do not fit into {spec.memory_bytes >> 20} MiB: "
                "give --allow-eviction to have the least used blocks evicted, or more shards first"
            )
    return None
