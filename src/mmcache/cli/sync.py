"""`mmcache sync`: follow a database, so that what was computed from rows that changed is served no more."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from mmcache.cli.output import DEFAULT_SPEAK, Exit, Speak, complain, facts, grid, show
from mmcache.model.errors import SettingsError
from mmcache.settings import SharedSettings

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mmcache.sync.dead import DeadLetter
    from mmcache.sync.status import Seen

app = App(name="sync", help="Follow a database: what was computed from rows that changed is served no more.")

REPEAT_SECONDS = 30.0
"""A line that was just told is not told again for so long."""

Config = Annotated[Path, Parameter(help="The mapping file (docs/reference/sync-config.md).")]
MaybeConfig = Annotated[Path | None, Parameter(help="The mapping file, for the address of the shared tier.")]
MaybeShared = Annotated[str | None, Parameter(help="The URL of the shared tier, instead of --config.")]


@app.command
def run(
    *,
    config: Config,
    until_end: Annotated[
        bool, Parameter(negative="", help="End when all that the broker has is applied, instead of going on.")
    ] = False,
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """Read change events and move the editions of what they are about, until SIGTERM or Ctrl-C.

    Can be killed at any moment and started again; several may run at once. Lines for people go to stderr.

    Example: mmcache sync run --config sync.yaml
    """
    from mmcache.sync import mapping
    from mmcache.sync.kafka import KafkaLog
    from mmcache.sync.link import open_link
    from mmcache.sync.refresh import load
    from mmcache.sync.runner import Runner

    found = mapping.read(config)
    sys.path.insert(0, os.getcwd())  # where the modules of `refresh` are looked for too, as `python -m` does
    refreshers = load(found.tables)
    tell = Teller()
    log = KafkaLog(found.kafka, tell)
    client, link = open_link(found)
    stop = threading.Event()
    with closing(client):
        name = f"{socket.gethostname()}:{os.getpid()}"
        runner = Runner(found, log, link, name=name, refreshers=refreshers, tell=tell, stop=stop)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        tell(f"following {', '.join(found.kafka.topics)} at {found.kafka.bootstrap} as {name}")
        runner.run(until_end)
    summary = dict(runner.counts) | {"epochs": runner.epochs}
    show(speak, summary, lambda: facts("stopped", summary))
    return Exit.DONE


class Teller:
    """Lines on stderr; the same line, or one that differs in numbers only, not again and again."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def __call__(self, line: str) -> None:
        now = time.monotonic()
        kind = re.sub(r"[0-9]+", "#", line)
        if now - self._told.get(kind, float("-inf")) < REPEAT_SECONDS:
            return
        if len(self._told) > 1000:
            self._told.clear()
        self._told[kind] = now
        print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} mmcache sync: {line}", file=sys.stderr, flush=True)


def _settings(config: Path | None, shared: str | None) -> SharedSettings:
    from mmcache.sync import mapping

    if (config is None) == (shared is None):
        raise SettingsError("say where the shared tier is: --config sync.yaml, or --shared URL")
    return SharedSettings(shared) if shared is not None else mapping.read(config).settings  # type: ignore[arg-type]


@app.command
def status(
    *,
    config: MaybeConfig = None,
    shared: MaybeShared = None,
    max_lag: Annotated[
        float, Parameter(help="Seconds that the last applied change may be old while others wait.")
    ] = 60,
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """Show every runner: what it waits for, how far it has come, what is left, what went wrong.

    Exit code 1 when none is alive, or one lags by more than --max-lag, or has not heard the connector for so long.

    Example: mmcache sync status --config sync.yaml --max-lag 5
    """
    from mmcache.sync.link import keeper_of
    from mmcache.sync.status import Status

    client, keeper = keeper_of(_settings(config, shared))
    with closing(client):
        seen = Status(keeper).seen()
    alive = [one for one in seen if one.alive]
    late = [one for one in alive if max(one.report.lag_seconds, one.report.heard_seconds or 0.0) > max_lag]
    data = [msgspec.to_builtins(one.report) | {"age_seconds": one.age, "alive": one.alive} for one in seen]
    show(speak, data, lambda: _status_view(seen))
    if not alive:
        complain("no runner is alive: mmcache sync run --config sync.yaml")
    return Exit.DONE if alive and not late else Exit.NO


def _status_view(seen: list[Seen]) -> RenderableType:
    from rich.console import Group

    return (
        Group(*(facts(_title(one), _facts(one)) for one in seen)) if seen else grid("no runner was ever here", (), ())
    )


def _title(one: Seen) -> str:
    state = one.report.state if one.alive or one.report.state == "stopped" else f"GONE, last {one.report.state}"
    return f"{one.report.runner} of group {one.report.group}: {state}"


def _facts(one: Seen) -> dict[str, object]:
    report, counts = one.report, one.report.counts
    heard = "its heartbeat topic is not read" if report.heard_seconds is None else f"{report.heard_seconds:.0f} s ago"
    told = (
        "applied",
        "moved",
        "ignored",
        "repeated",
        "poison",
        "stalls",
        "refreshed",
        "refresh_failed",
        "refresh_left_out",
    )
    return {
        "seen": f"{one.age:.0f} s ago",
        "lag": f"{report.lag} messages" + (f", {report.lag_seconds:.1f} s" if report.lag else ""),
        **{name.replace("_", " "): counts[name] for name in told if name in counts},
        "times it was not known what was missed": report.epochs,
        "dead letters": report.dead,
        "connector heard": heard,
        "last error": report.last_error or "–",
        **{f"next of {name}": offset for name, offset in report.positions.items()},
    }


@app.command
def move(*tables: str, config: Config, speak: Speak = DEFAULT_SPEAK) -> int:
    """Make all that was computed from these tables unreachable; from all that are mapped, when none is named.

    For what no change event tells: a restored backup, an ALTER TABLE that rewrote values, a load with logging off.

    Example: mmcache sync move public.products --config sync.yaml
    """
    from mmcache.sync import mapping
    from mmcache.sync.link import open_link
    from mmcache.tiers.valkey.editions import ANEW, Change

    found = mapping.read(config)
    if unknown := sorted(set(tables) - set(found.tables)):
        raise SettingsError(f"{config} has no table {unknown[0]}; it has {', '.join(found.tables)}")
    moved = list(tables or found.tables)
    client, link = open_link(found)
    with closing(client):
        link.check()
        link.publisher.apply([Change(link.ids.table(found.tables[name].name or name), ANEW) for name in moved])
    show(speak, {"moved": moved}, lambda: grid(f"moved: {', '.join(moved)}", (), ()))
    return Exit.DONE


@app.command
def dead(
    *,
    config: MaybeConfig = None,
    shared: MaybeShared = None,
    retry: Annotated[
        str | None, Parameter(help="Do this one again, and drop it when that works. Needs --config.")
    ] = None,
    drop: Annotated[str | None, Parameter(help="Drop this one; `all` drops every one.")] = None,
    count: Annotated[int, Parameter(help="Show so many, the latest.")] = 20,
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """List the messages that could not be applied, with the reason; do one again, or drop it.

    Exit code 1 when there are any.

    Example: mmcache sync dead --config sync.yaml --retry 1796000000000-0
    """
    from mmcache.sync.dead import DeadLetters
    from mmcache.sync.link import keeper_of

    if retry is not None and drop is not None:
        raise SettingsError("either --retry or --drop")
    settings = _settings(config, shared)
    client, keeper = keeper_of(settings)
    with closing(client):
        letters = DeadLetters(keeper)
        if retry is not None:
            moved = _retry(config, letters.find(retry))
            letters.drop(retry)
            show(speak, {"retried": retry, "moved": moved}, lambda: grid(f"{retry}: {moved} sources moved", (), ()))
            return Exit.DONE
        if drop is not None:
            if drop == "all":
                dropped = letters.drop_all()
            else:
                dropped = 1
                letters.drop(letters.find(drop).id)
            show(speak, {"dropped": dropped}, lambda: grid(f"{dropped} dropped", (), ()))
            return Exit.DONE
        found, total = letters.latest(count), letters.count()
    data = {"total": total, "letters": [_letter(one) for one in found]}
    show(speak, data, lambda: _dead_view(found, total))
    return Exit.NO if total else Exit.DONE


def _retry(config: Path | None, letter: DeadLetter) -> int:
    from mmcache.sync import mapping
    from mmcache.sync.link import open_link
    from mmcache.sync.refresh import load
    from mmcache.sync.retry import retry

    if config is None:
        raise SettingsError("--retry needs --config, for the mapping and the secret")
    found = mapping.read(config)
    sys.path.insert(0, os.getcwd())
    client, link = open_link(found)
    with closing(client):
        link.check()
        return retry(letter, link, found.tables, load(found.tables))


def _letter(one: DeadLetter) -> dict[str, Any]:
    texts = {"key": one.message.key, "value": one.message.value}
    shown = {name: None if raw is None else raw.decode("utf-8", "replace") for name, raw in texts.items()}
    place = {"topic": one.message.topic, "partition": one.message.partition, "offset": one.message.offset}
    return {"id": one.id, "reason": one.reason, "error": one.error, "whole": one.whole} | place | shown


def _dead_view(found: list[DeadLetter], total: int) -> RenderableType:
    lines = [
        (one.id, one.reason, one.message.topic, one.message.partition, one.message.offset, one.error) for one in found
    ]
    return grid(f"{total} dead letters", ("id", "reason", "topic", "partition", "offset", "error"), lines)
