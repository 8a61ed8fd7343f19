"""One graph of the views of several processes.

Keys that several have are one node, and their edges add up. A community's id is its process' own: so those of two
processes are one only where they have keys in common, more than half of the smaller; all else stays apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from mmcache.dashboard.graph_kept import Held, Move, Process, whose
from mmcache.hotkeys.view import MOST_COMMUNITIES, MOST_EDGES, MOST_KEYS, Community, HotKey

Own = tuple[str, str, int]
"""A community as its process has it: service, instance, id."""
Wanted = Callable[[str, str], bool]
"""Whether keys of a tenant and a modality are asked for."""
_LIVELIEST = ("living", "appeared", "fading", "faded")
_COMMON = 0.5


@dataclass(frozen=True, slots=True)
class Gone:
    """A community that is not in any view any more, as it was last."""

    process: Process
    at: float
    move: Move


def merged(held: Sequence[Held], gone: Sequence[Gone], wanted: Wanted | None) -> dict[str, Any]:
    """`nodes`, `edges`, `communities`: the hottest 200 keys, heaviest 600 edges, 64 communities. wanted: None = all."""
    same: dict[str, list[tuple[Process, HotKey]]] = {}
    for one in held:
        for key in one.view.keys:
            same.setdefault(key.key, []).append((one.process, key))
    groups = _groups(held)
    names = {own: _name(group[0]) for group in groups for own in group}
    nodes = [_node(keys, names) for keys in same.values()]
    if wanted is not None:
        nodes = [node for node in nodes if wanted(node["tenant"], node["modality"])]
    nodes = sorted(nodes, key=lambda node: (-node["score"], -node["heat"], node["key"]))[:MOST_KEYS]
    places = {node["key"]: at for at, node in enumerate(nodes)}
    weights: dict[tuple[int, int], float] = {}
    for one in held:
        here = {at: places[key.key] for at, key in enumerate(one.view.keys) if key.key in places}
        for edge in one.view.edges:
            if edge.source in here and edge.target in here:
                pair = here[edge.source], here[edge.target]
                weights[pair] = weights.get(pair, 0.0) + edge.weight
    heaviest = sorted(weights.items(), key=lambda item: (-item[1], item[0]))[:MOST_EDGES]
    return {
        "nodes": nodes,
        "edges": [{"source": source, "target": target, "weight": weight} for (source, target), weight in heaviest],
        "communities": _communities(held, groups, gone, names, wanted),
    }


def _node(keys: Sequence[tuple[Process, HotKey]], names: Mapping[Own, str]) -> dict[str, Any]:
    """What is not a sum is as the process says that uses it most."""
    process, hottest = max(keys, key=lambda one: (one[1].heat, one[1].score, one[0]))
    own = [names.get((*where, key.community)) for where, key in [(process, hottest), *keys]]
    return {
        "key": hottest.key,
        "score": hottest.score,
        "parts": hottest.parts,
        "heat": sum(key.heat for _, key in keys),
        "modality": hottest.modality,
        "tenant": hottest.tenant,
        "tier": hottest.tier,
        "bytes": hottest.bytes,
        "expected_hours": hottest.expected_hours,
        "confidence": hottest.confidence,
        "community": next((name for name in own if name is not None), None),
        "instances": len(keys),
    }


def _groups(held: Sequence[Held]) -> list[list[Own]]:
    """Communities that are the same, the oldest of them first. Process by process: its time grows as their number."""
    groups: list[list[Own]] = []
    keys: list[set[str]] = []
    known: dict[Own, Community] = {}
    having: dict[str, set[int]] = {}
    for one in sorted(held, key=lambda one: one.process):
        mine: dict[int, set[str]] = {}
        for key in one.view.keys:
            mine.setdefault(key.community, set()).add(key.key)
        taken = set()  # by a community of this process: two of one process are two
        for community in one.view.communities:
            own, these = (*one.process, community.id), mine.get(community.id, set())
            known[own] = community
            common = Counter(at for name in these for at in having.get(name, ()) if at not in taken)
            likest, count = max(common.items(), key=lambda item: (item[1], -item[0]), default=(0, 0))
            if count and count > _COMMON * min(len(these), len(keys[likest])):
                groups[likest].append(own)
                keys[likest] |= these
            else:
                likest = len(groups)
                groups.append([own])
                keys.append(set(these))
            taken.add(likest)
            for name in these:
                having.setdefault(name, set()).add(likest)
    return [sorted(group, key=lambda own: (known[own].since, own)) for group in groups]


def _communities(
    held: Sequence[Held],
    groups: Sequence[Sequence[Own]],
    gone: Sequence[Gone],
    names: Mapping[Own, str],
    wanted: Wanted | None,
) -> list[dict[str, Any]]:
    views = {one.process: one.view for one in held}
    known = {(*process, one.id): one for process, view in views.items() for one in view.communities}
    said = []
    for group in groups:
        if _any(wanted, [pair for own in group for pair in whose(views[own[:2]], own[2])]):
            took = [(*own[:2], other) for own in group for other in known[own].merged]
            processes = len({own[:2] for own in group})
            ids = [names.get(own) or _name(own) for own in took]
            said.append(_said(group[0], [known[own] for own in group], processes, ids, None))
    for past in gone:
        own = (*past.process, past.move.community.id)
        ended = past.move.community.state == "faded"  # else it lived when its process was heard last
        if ended and own not in names and _any(wanted, past.move.whose):
            said.append(_said(own, [past.move.community], 1, [], past.at))
    said.sort(key=lambda one: (one["state"] == "faded", -one["weight"], -one["size"], one["number"], one["id"]))
    return said[:MOST_COMMUNITIES]


def _any(wanted: Wanted | None, pairs: Sequence[tuple[str, str]]) -> bool:
    return wanted is None or any(wanted(*pair) for pair in pairs)


def _said(first: Own, them: Sequence[Community], processes: int, took: Sequence[str], until: float | None) -> Any:
    return {
        "id": _name(first),
        "number": first[2],
        "service": first[0],
        "instance": first[1],
        "instances": processes,
        "size": max(one.size for one in them),
        "weight": sum(one.weight for one in them),
        "state": "faded" if until is not None else min((one.state for one in them), key=_LIVELIEST.index),
        "since": min(one.since for one in them),
        "until": until,
        "merged": list(dict.fromkeys(took)),
    }


def _name(own: Own) -> str:
    """Of a process, so that two of them do not share it."""
    digest = blake2b(f"{own[0]}\0{own[1]}".encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{own[2]}-{digest}"
