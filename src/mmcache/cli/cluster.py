"""`mmcache cluster`: a Valkey cluster on this machine that grows with its load and shrinks again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter, validators

from mmcache.cli.cluster_options import DEFAULT_PLACE, NO_WISHES, Place, Wait, Wishes, options_named
from mmcache.cli.cluster_status import status
from mmcache.cli.ending import ended_by_signal
from mmcache.cli.output import Exit, bar, complain, grid, show, size
from mmcache.model.errors import SettingsError

if TYPE_CHECKING:
    from mmcache.scale.local import Handle
    from mmcache.scale.local.files import Told, Wanted
    from mmcache.scale.spec import ClusterSpec

app = App(name="cluster", help="A Valkey cluster on this machine, to share a cache through: it grows and shrinks.")
app.command(status)


@app.command
def up(
    *,
    wishes: Wishes = NO_WISHES,
    server: Annotated[
        str | None, Parameter(help="What the nodes run: 'valkey 9.1', 'redis 7.0' or a path. Default: what is found.")
    ] = None,
    port: Annotated[
        int | None, Parameter(help="Nodes listen on the first free ports from here on.",
                              validator=validators.Number(gte=1024, lte=55_000))
    ] = None,
    foreground: Annotated[
        bool, Parameter(negative="", show_default=False, help="Watch over it in this process, until Ctrl-C.")
    ] = False,
    wait: Wait = True,
    place: Place = DEFAULT_PLACE,
) -> int:  # fmt: skip
    """Bring up a cluster on this machine, or one that was brought up before; what runs stays and keeps its blocks.

    Its nodes are processes that listen on 127.0.0.1 and ask for a password; one more process watches over them, starts
    again what dies, and moves slots when the number of shards changes. Given again with other options, it changes it.

    Example: mmcache cluster up --shards 3 --max-shards 5 --qps-threshold 2
    """
    handle = place.handle
    change = wishes.change() | ({} if server is None else {"version": server})
    moved = port is not None and handle.exists and port != handle.require().first_port
    with options_named():
        if handle.exists and (refused := _refusal(handle, change)) is not None:
            return _refused(refused, place)
        wanted = handle.up(change, port, start=not foreground)
    _warn_of_memory(wanted.spec)
    if moved:
        complain(f"nodes that are there keep their ports; those that come listen from {port} on")
    if foreground:
        return _stay(handle, place)
    told = None
    if wait:
        told = _wait(handle, wanted, place)
        if told is None:
            return Exit.NO
    _say_up(handle, wanted, told, place)
    return Exit.DONE


@app.command
def scale(
    shards: Annotated[int, Parameter(help="So many at least; without --max-shards of its own, exactly so many.")],
    *,
    wait: Wait = True,
    place: Place = DEFAULT_PLACE,
) -> int:
    """Change the number of shards, while it is used: slots move with their blocks, one shard after another.

    Exit code 1 when that cannot be done, such as when the blocks would not fit into fewer shards.

    Example: mmcache cluster scale 5
    """
    return _change(place, {"min_shards": shards}, wait)


@app.command(name="set")
def set_(*, wishes: Wishes = NO_WISHES, wait: Wait = True, place: Place = DEFAULT_PLACE) -> int:
    """Change what is wanted of a running cluster: when it grows, its memory, its replicas.

    Exit code 1 when that cannot be done.

    Example: mmcache cluster set --max-shards 8 --qps-threshold 10
    """
    change = wishes.change()
    if not change:
        raise SettingsError("nothing to change: give an option, such as --max-shards 8 (mmcache cluster set --help)")
    return _change(place, change, wait)


@app.command
def upgrade(
    version: Annotated[str, Parameter(help="'valkey 9.1', 'redis 7.0', or the path of a server.")],
    *,
    wait: Wait = True,
    place: Place = DEFAULT_PLACE,
) -> int:
    """Let all nodes run another server, one after another, while the cluster is used and keeps its blocks.

    Replicas are replaced first, then take over from their primaries. Exit code 1 when that cannot be done: no server
    reads what a newer one wrote.

    Example: mmcache cluster upgrade 'valkey 9.1'
    """
    return _change(place, {"version": version}, wait)


@app.command
def url(*, place: Place = DEFAULT_PLACE) -> int:
    """Print the address that a cache is given as `shared`; the password is not in it.

    Example: mmcache serve --shared "$(mmcache cluster url)"
    """
    found = place.there.url
    return _say(place, "url", found)


@app.command
def password(*, place: Place = DEFAULT_PLACE) -> int:
    """Print the cluster's password. Give it to a cache by the environment: command lines are seen by everybody.

    Example: export MMCACHE_SHARED_PASSWORD="$(mmcache cluster password)"
    """
    found = place.there.password
    return _say(place, "password", found)


def _say(place: Place, name: str, found: str) -> int:
    """That alone, in one line as it is: a shell takes it in by `$(…)`, which keeps an empty line before it."""
    if place.json:
        show(place, {name: found}, lambda: "")
    else:
        print(found)
    return Exit.DONE


@app.command
def down(*, place: Place = DEFAULT_PLACE) -> int:
    """End the cluster: all its processes, and all that it holds.

    Example: mmcache cluster down
    """
    handle = place.handle
    if not handle.files.is_clusters:
        handle = place.there
    handle.down()
    show(
        place,
        {"ended": str(handle.files.folder)},
        lambda: grid(f"the cluster in {handle.files.folder} is ended", (), ()),
    )
    return Exit.DONE


def _change(place: Place, change: dict[str, Any], wait: bool) -> int:
    handle = place.there
    handle.require_supervisor()
    with options_named():
        if (refused := _refusal(handle, change)) is not None:
            return _refused(refused, place)
        wanted = handle.change(change)
    _warn_of_memory(wanted.spec)
    told = _wait(handle, wanted, place) if wait else None
    if wait and told is None:
        return Exit.NO
    data = {"generation": wanted.generation, "spec": wanted.spec, "status": told.status if told else None}
    show(place, msgspec.to_builtins(data), lambda: grid(_changed_words(wanted, told, place), (), ()))
    return Exit.DONE


def _refusal(handle: Handle, change: dict[str, Any]) -> str | None:
    from mmcache.scale.local.asking import refusal
    from mmcache.scale.local.handle import changed

    return refusal(handle, changed(handle.require().spec, change))


def _changed_words(wanted: Wanted, told: Told | None, place: Place) -> str:
    spec = wanted.spec
    if told is None or told.status is None:
        return f"it is being done; mmcache cluster status --watch{place.words} shows how far it is"
    words = f"done: {told.status.shards} shards serve, {told.status.ready_nodes} nodes are ready"
    if told.status.reason != "Steady":
        words += f"; {told.status.message}"
    if told.status.shards > spec.min_shards:
        words += f" (it shrinks to {spec.min_shards} when it was quiet for {spec.burst.quiet_seconds:g} s)"
    return words


def _wait(handle: Handle, wanted: Wanted, place: Place) -> Told | None:
    """None: it is refused, and said so. Raises `ScaleError`, `KeyboardInterrupt`."""
    from mmcache.cli.cluster_view import DISK_FULL
    from mmcache.scale.status import Phase

    said: set[str] = set()

    def say_once(trouble: str) -> None:
        if trouble not in said:
            said.add(trouble)
            complain(f"meanwhile: {trouble}")

    try:
        with bar(place) as progress, ended_by_signal() as pause:

            def wait(seconds: float) -> bool:
                if handle.disk_full:
                    say_once(DISK_FULL)
                return pause(seconds)

            def hear(told: Told) -> None:
                status = told.status
                assert status is not None
                if status.reason == "NoMajority":
                    say_once(status.message)
                if told.failing:
                    say_once(told.failing)
                progress("shards", min(status.shards, status.wanted), max(status.wanted, 1))
                progress("nodes", status.ready_nodes, max(status.nodes, 1))
                if status.progress is not None:
                    progress("slots", status.progress.moved, max(status.progress.total, 1))

            told = handle.settled(wanted.generation, hear, wait)
    except KeyboardInterrupt:
        complain(f"it goes on by itself; mmcache cluster status --watch{place.words} shows how far it is")
        raise
    assert told is not None  # else Ctrl-C was raised
    assert told.status is not None
    if told.generation != wanted.generation:
        _refused(f"meanwhile something else was asked for: {told.status.shards} shards, {told.status.message}", place)
        return None
    if told.status.phase is not Phase.BLOCKED:
        return told
    _refused(f"{told.status.message}; it is done as soon as it can be. What is wanted: mmcache cluster status", place)
    return None


def _refused(message: str, place: Place) -> int:
    if place.json:
        show(place, {"error": "ScaleError", "message": message}, lambda: "")
    complain(message)
    return Exit.NO


def _stay(handle: Handle, place: Place) -> int:
    from mmcache.scale.local.supervisor import supervise

    data = {"folder": str(handle.files.folder)}
    words = f"watching over {handle.files.folder}; Ctrl-C ends that, mmcache cluster down{place.words} ends the cluster"
    if not supervise(handle.files.folder, lambda: show(place, data, lambda: grid(words, (), ()))):
        complain(f"process {handle.supervisor} watches over it already: mmcache cluster status{place.words}")
        return Exit.NO
    return Exit.DONE


def _warn_of_memory(spec: ClusterSpec) -> None:
    from mmcache.scale.local.machine import memory_bytes

    nodes, has = spec.max_shards * (1 + spec.replicas), memory_bytes()
    if nodes * spec.memory_bytes > has:
        complain(
            f"warning: {nodes} nodes of {size(spec.memory_bytes)} may need {size(nodes * spec.memory_bytes)}, and this "
            f"machine has {size(has)}: give less --memory, or fewer --max-shards"
        )


def _say_up(handle: Handle, wanted: Wanted, told: Told | None, place: Place) -> None:
    from mmcache.cli.cluster_view import brought_up

    data = {
        "folder": str(handle.files.folder), "url": handle.url if told else None, "generation": wanted.generation,
        "password_file": str(handle.files.password_file), "supervisor": handle.supervisor, "spec": wanted.spec,
        "status": told.status if told else None,
    }  # fmt: skip
    show(place, msgspec.to_builtins(data), lambda: brought_up(handle, wanted, told))
    if not place.json:
        print("\n".join(_next(handle.url if told else None, place.words)))


def _next(address: str | None, words: str) -> Iterable[str]:
    if address is not None:
        yield "Next:"
        yield f'  export MMCACHE_SHARED_PASSWORD="$(mmcache cluster password{words})"'
        yield f"  mmcache serve --upstream http://localhost:8000 --shared '{address}'"
        yield f'  in Python: Cache(shared="{address}")'
    yield f"  mmcache cluster status --watch{words}    mmcache cluster scale 5{words}    mmcache cluster down{words}"
