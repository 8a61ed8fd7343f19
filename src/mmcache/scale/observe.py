"""One look at everything: all members are asked side by side, so that one that hangs costs one wait in all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TypeVar

from mmcache.model.errors import ScaleError
from mmcache.scale.access import Access
from mmcache.scale.observed import Member, NodeSeen, Observed
from mmcache.scale.platform import Platform
from mmcache.scale.views import jobs, moves_slots_itself, read_node, under_way

_MOST_THREADS = 64
_NODE_WORDS = (("CLUSTER", "NODES"), ("CLUSTER", "INFO"), ("INFO",))
_T = TypeVar("_T")
_R = TypeVar("_R")


def look(platform: Platform, access: Access, at: float) -> Observed:
    """See `Observed`. A node that does not answer, or in no sense, is in `silent` with the reason.

    at: seconds, monotonic. Raises `ScaleError` where the platform cannot be asked.
    """
    members = tuple(platform.members())
    known: dict[str, frozenset[int]] = {}
    asked = [member for member in members if member.host and member.port]
    told = side_by_side(lambda member: ask_node(member, access, known), asked, access.timeout_seconds)
    nodes: dict[str, NodeSeen] = {}
    silent = {member.name: "it has no address yet" for member in members if member not in asked}
    for member, answer in zip(asked, told, strict=True):
        if isinstance(answer, NodeSeen):
            nodes[member.name] = answer
        else:
            silent[member.name] = access.hiding(str(answer or f"{member.host} does not answer in time"))
    return Observed(members, nodes, at, silent)


def ask_node(member: Member, access: Access, known: dict[str, frozenset[int]] | None = None) -> NodeSeen:
    """One member, now. Raises `ScaleError`."""
    until = time.monotonic() + access.timeout_seconds
    with access.to(member.host, member.port) as node:
        try:
            nodes, cluster, info = node.tell(_NODE_WORDS, until - time.monotonic())
            seen = read_node(nodes, cluster, info, {} if known is None else known)
            if seen.primary or not moves_slots_itself(seen.version):
                return seen
            told = node.ask("CLUSTER", "GETSLOTMIGRATIONS", seconds=until - time.monotonic())
            return replace(seen, moving=any(map(under_way, jobs(told))))
        except ScaleError as error:
            raise error if node.place in str(error) else ScaleError(f"{node.place}: {error}") from error


def side_by_side(
    do: Callable[[_T], _R], things: Sequence[_T], timeout_seconds: float, threads: int = _MOST_THREADS
) -> list[_R | ScaleError | None]:
    """What `do` returns for each, or the `ScaleError` that it raises; None for those that took too long.

    Each is to end by itself within about `timeout_seconds`; what nobody can bound, such as asking for the address of a
    name, is left behind in a thread that ends with the process.
    """
    waiting: SimpleQueue[int] = SimpleQueue()
    done: SimpleQueue[tuple[int, _R | ScaleError | BaseException]] = SimpleQueue()
    for number in range(len(things)):
        waiting.put(number)

    def work() -> None:
        while True:
            try:
                number = waiting.get_nowait()
            except Empty:
                return
            try:
                done.put((number, do(things[number])))
            except BaseException as error:  # noqa: BLE001 - it is raised in the thread that asked
                done.put((number, error))

    if not things:
        return []
    for _ in range(min(threads, len(things))):
        threading.Thread(target=work, name="mmcache-scale-look", daemon=True).start()
    answers: list[_R | ScaleError | None] = [None] * len(things)
    for _ in things:
        try:
            number, answer = done.get(timeout=3 * timeout_seconds)
        except Empty:
            break
        if isinstance(answer, BaseException) and not isinstance(answer, ScaleError):
            raise answer
        answers[number] = answer
    return answers
