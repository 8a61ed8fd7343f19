"""`mmcache cluster status`, once or live."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from mmcache.cli.cluster_options import DEFAULT_PLACE, Place
from mmcache.cli.ending import ended_by_signal
from mmcache.cli.output import Exit, complain, show

if TYPE_CHECKING:
    from mmcache.cli.cluster_view import Glance
    from mmcache.scale.local import Handle


def status(
    *,
    watch: Annotated[
        bool, Parameter(negative="", show_default=False, help="Look again and again, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, Parameter(help="Seconds between two looks.", validator=validators.Number(gte=0.1, lte=3600))
    ] = 1.0,
    place: Place = DEFAULT_PLACE,
) -> int:
    """Show shards, nodes, slots, memory, load, hit ratio, what is going on and what happened last.

    Exit code 1 when slots are served by nobody, nobody watches over the cluster, or what is wanted cannot be done.

    Example: mmcache cluster status --watch
    """
    from mmcache.cli.cluster_view import as_data, glance, view

    handle = place.there
    if watch:
        return _watch(handle, place, interval)
    found = glance(handle)
    show(place, as_data(found), lambda: view(found))
    if found.supervisor is None:
        complain(f"nobody watches over the cluster: mmcache cluster up{place.words}")
    return Exit.DONE if found.well else Exit.NO


def _watch(handle: Handle, place: Place, interval: float) -> int:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from mmcache.cli.cluster_view import as_data, glance, view

    def print_it(found: Glance) -> None:
        show(place, as_data(found), lambda: view(found))
        sys.stdout.flush()

    found = glance(handle)
    with ended_by_signal() as pause, ExitStack() as ends:
        draw = print_it
        if not place.json and sys.stdout.isatty():
            screen = ends.enter_context(Live(console=Console(), screen=True, auto_refresh=False))
            hint = Text("Ctrl-C ends the look, not the cluster")

            def draw(found: Glance) -> None:
                screen.update(Group(view(found), hint), refresh=True)

        draw(found)
        while pause(interval):
            draw(glance(handle))
    return Exit.DONE
