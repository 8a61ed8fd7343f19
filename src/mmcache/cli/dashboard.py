"""`mmcache dashboard`: the page that says why it missed, fed by OTLP."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from mmcache.cli.output import DEFAULT_SPEAK, Exit, Speak, complain, facts, show
from mmcache.model.errors import SettingsError
from mmcache.settings import DashboardSettings, dashboard_token, default_traces, parse_bytes


def dashboard(
    *,
    otlp: Annotated[
        str, Parameter(help="Where OTLP over HTTP arrives, :4318 or HOST:PORT; port 0 = any that is free.")
    ] = ":4318",
    port: Annotated[
        int | None, Parameter(help="A port of its own for the page. Default: the one of --otlp has both.")
    ] = None,
    host: Annotated[str, Parameter(help="Address to listen at.")] = "127.0.0.1",
    store: Annotated[
        str | None,
        Parameter(help="A DuckDB file, or :memory:. Default: ~/.local/state/mmcache/traces.duckdb."),
    ] = None,
    limit: Annotated[str, Parameter(help="Most bytes of the store; beyond it, the oldest spans go.")] = "2GiB",
    gpu_hour: Annotated[float | None, Parameter(help="What an hour of computing costs: 2.5.")] = None,
    currency: Annotated[str, Parameter(help="In which currency.")] = "USD",
    admin_token_file: Annotated[
        Path | None, Parameter(help="What allows to clear the store. Default: $MMCACHE_DASHBOARD_TOKEN.")
    ] = None,
    ingest_token_file: Annotated[Path | None, Parameter(help="What senders must show. Default: nothing.")] = None,
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """Take spans and metrics by OTLP, and show why lookups missed, until SIGTERM or Ctrl-C.

    Point any OpenTelemetry SDK or collector at it (OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318), or
    `instrument(cache, otlp="http://localhost:4318")`. Whoever reaches the port may read: it listens at 127.0.0.1.

    Example: mmcache dashboard --otlp :4318 --store traces.duckdb
    """
    try:
        from mmcache.dashboard.app import Dashboard
        from mmcache.dashboard.serving import listen, loopback, run
        from mmcache.dashboard.store import Store
    except ModuleNotFoundError as error:
        raise SettingsError(f"the dashboard needs {error.name}: pip install 'mmcache[dashboard]'") from error
    os.umask(0o077)
    place = str(default_traces()) if store is None else store
    settings = DashboardSettings(
        store=place, limit_bytes=parse_bytes(limit), gpu_hour=gpu_hour, currency=currency[:8],
        admin_token=dashboard_token() if admin_token_file is None else _token(admin_token_file),
        ingest_token=None if ingest_token_file is None else _token(ingest_token_file),
    )  # fmt: skip
    with ExitStack() as stack:
        sockets = [stack.enter_context(listen(*_address(otlp, host)))]
        if port is not None:
            sockets.append(stack.enter_context(listen(host, port)))
        kept = Store(settings, complain)
        stack.callback(kept.close)
        doors = []
        receives, shows = (_url(listening) for listening in (sockets[0], sockets[-1]))
        for at, listening in enumerate(sockets):
            both = len(sockets) == 1
            halves = {"otlp": at == 0, "pages": both or at == 1}
            doors.append(Dashboard(kept, guarded=loopback(listening), **halves, receives=None if both else receives))
            stack.callback(doors[-1].close)
        data = {"page": shows, "otlp": receives, "store": place}
        if speak.json:
            print(msgspec.json.encode(data).decode(), flush=True)
        else:
            lines = data | {"senders": f"OTEL_EXPORTER_OTLP_ENDPOINT={receives}"}
            show(speak, data, lambda: facts("mmcache dashboard", lines))
        run(list(zip(doors, sockets, strict=True)))
    return Exit.DONE


def _address(text: str, host: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)?:)?([0-9]{1,5})", text.removeprefix("http://"))
    if match is None or int(match[2]) > 65535:
        raise SettingsError(f"--otlp is :4318 or HOST:PORT, not {text!r}")
    return (match[1] or host).strip("[]"), int(match[2])


def _url(listening: object) -> str:
    host, port = listening.getsockname()[:2]  # type: ignore[attr-defined]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _token(file: Path) -> str:
    try:
        return file.expanduser().read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the token: {error}") from error
