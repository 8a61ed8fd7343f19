"""`mmcache top`: a dashboard in the terminal, live."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from mmcache.cli.output import DEFAULT_SPEAK, Exit, Speak, show
from mmcache.model.errors import SettingsError

if TYPE_CHECKING:
    from mmcache.cli.top_feed import Feed
    from mmcache.cli.top_view import Look

Axis = Literal["modality", "route", "tenant", "region", "strategy", "service", "instance"]


def top(
    *,
    address: Annotated[str, Parameter(name="--from", help="The dashboard's address.")] = "http://127.0.0.1:4318",
    interval: Annotated[
        float, Parameter(help="Seconds between two looks.", validator=validators.Number(gte=0.1, lte=3600))
    ] = 1.0,
    by: Annotated[Axis, Parameter(help="What the hit ratio is taken apart by; key b moves on.")] = "tenant",
    minutes: Annotated[float, Parameter(help="How far back.", validator=validators.Number(gte=1, lte=1e6))] = 15.0,
    until: Annotated[
        str | None, Parameter(help="Look at the past: the end of the window, 2026-09-24T02:45Z. Default: now.")
    ] = None,
    once: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Print it once and end. Also where stdout is no terminal."),
    ] = False,
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """Show hit ratio, causes of a fall, miss reasons, savings, tiers and hottest keys of a dashboard, live.

    Keys: q ends, b takes the hit ratio apart by the next axis, r shows reasons over time, p pauses. Needs 80 × 24.

    Example: mmcache top --from http://127.0.0.1:4318 --by instance
    """
    from mmcache.cli.top_feed import Feed
    from mmcache.cli.top_view import Look, printed

    feed, end = Feed(address), None if until is None else _moment(until)
    look = Look(address)
    if once or speak.json or not _watched():
        snapshot = look.snapshot = feed.read(by, time.time() if end is None else end, minutes)
        look.plain = not _draws_blocks()

        def view() -> object:
            from rich.console import Console, Group

            return Group(*printed(look, Console().width))

        show(speak, snapshot.to_dict(), view)  # type: ignore[arg-type]
        return Exit.DONE
    return _live(feed, look, by, interval, minutes, end)


def _live(feed: Feed, look: Look, by: str, interval: float, minutes: float, end: float | None) -> int:
    from mmcache.cli.top_live import live

    look.plain = not _draws_blocks()
    live(feed, look, by, interval, minutes, end)
    return Exit.DONE


def _watched() -> bool:
    from rich.console import Console

    return sys.stdout.isatty() and not Console().is_dumb_terminal


def _draws_blocks() -> bool:
    encoding = sys.stdout.encoding if isinstance(sys.stdout, TextIOWrapper) else "utf-8"
    try:
        "▁█░".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _moment(text: str) -> float:
    try:
        when = datetime.fromisoformat(text)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise SettingsError(f"--until is a time like 2026-09-24T02:45Z, not {text!r}") from error
