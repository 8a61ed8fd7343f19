"""`mmcache serve`: the cache in front of anything that speaks OpenAI's protocol."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from cyclopts import Parameter

from mmcache.cli.companion import companion
from mmcache.cli.folder import require, secret
from mmcache.cli.output import DEFAULT_SPEAK, Exit, Folder, Speak, facts, show
from mmcache.model.errors import SettingsError
from mmcache.settings import default_root

if TYPE_CHECKING:
    from mmcache.cache import Cache
    from mmcache.server.config import TelemetryRules
    from mmcache.server.settings_file import Configured
    from mmcache.server.tracing import Tracer
    from mmcache.visits import Prefetcher


def serve(
    *,
    upstream: Annotated[
        str | None, Parameter(help="Address of the server behind, without /v1: http://localhost:8000.")
    ] = None,
    config: Annotated[Path | None, Parameter(help="A TOML file (docs/reference/serve-config.md).")] = None,
    host: Annotated[str | None, Parameter(help="Address to listen at. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, Parameter(help="Port to listen at; 0 = any that is free. Default: 8090.")] = None,
    root: Annotated[
        Path | None, Parameter(help="The cache folder. Default: $MMCACHE_ROOT, else ~/.cache/mmcache.")
    ] = None,
    shared: Annotated[str | None, Parameter(help="Also share with other hosts: valkey://host:6379.")] = None,
    kind: Annotated[
        Literal["openai", "vllm"] | None, Parameter(help="What the upstream is; vllm: media that it knows is not sent.")
    ] = None,
    version: Annotated[
        str | None, Parameter(help="Of the models behind it; change it when weights change under one name.")
    ] = None,
    otlp: Annotated[
        str | None, Parameter(help="Send spans and metrics there: http://localhost:4318. Default: $MMCACHE_OTLP.")
    ] = None,
    sample: Annotated[
        float | None, Parameter(help="Share of requests that become spans. Default: 0.01; with --dashboard 1.")
    ] = None,
    service: Annotated[str | None, Parameter(help="Its name there. Default: mmcache.")] = None,
    region: Annotated[
        str | None, Parameter(help="Where this proxy is, and its clients, where nobody says better.")
    ] = None,
    dashboard: Annotated[
        bool, Parameter(negative="", show_default=False, help="Also start a dashboard on this machine, fed by it.")
    ] = False,
    dashboard_port: Annotated[
        int, Parameter(help="The dashboard's port; 0 = any that is free. Its address is printed.")
    ] = 0,
    tenant_of_key: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Serve nothing: say which tenant the API key on stdin is."),
    ] = False,
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """Answer what was answered before, and pass on everything else, until SIGTERM or Ctrl-C.

    Point clients at it with OPENAI_BASE_URL. SIGTERM finishes what is under way and ends with 0; SIGHUP reads --config
    anew. One process uses one core: run several with the same --root, or on several hosts with --shared.

    GET /metrics has its counters for Prometheus. --otlp sends spans and metrics to a collector or to `mmcache
    dashboard`; --dashboard starts one, in a process of its own that ends with this one.

    Example: mmcache serve --upstream http://localhost:8000
    """
    try:
        from mmcache.server import drain, upstream_http  # noqa: F401 - what is said here, of all that it needs
    except ModuleNotFoundError as error:
        raise SettingsError(f"the proxy needs {error.name}: pip install 'mmcache[server]'") from error
    from mmcache.server.settings_file import read

    if dashboard and sample is None:
        sample = 1.0
    receiver = otlp

    def settings() -> Configured:
        return read(
            config, upstream=upstream, host=host, port=port, kind=kind, version=version, shared=shared,
            root=None if root is None else str(root), otlp=receiver, sample=sample, service=service, region=region,
        )  # fmt: skip

    found = settings()
    if tenant_of_key:
        return _say_tenant(found, speak)
    if dashboard and (known := found.server.telemetry.otlp) is not None:
        raise SettingsError(f"this sends to {known}, give no --dashboard: a collector can send to a dashboard as well")
    with ExitStack() as ends:
        if dashboard:
            try:
                command = ["dashboard", "--otlp", f"127.0.0.1:{dashboard_port}", "--json"]
                told = ends.enter_context(companion(command, again=_same_place))
            except SettingsError as error:
                raise SettingsError(f"{error} (one that runs can be fed: --otlp ITS_ADDRESS)") from error
            receiver = told["otlp"]
            found = settings()
        return _serve(found, settings, told["page"] if dashboard else None, speak)


def _same_place(told: Mapping[str, Any]) -> list[str]:
    """The dashboard again, where its senders and its readers know it."""
    return ["dashboard", "--otlp", urlsplit(told["otlp"]).netloc, "--json"]


def _serve(found: Configured, settings: Callable[[], Configured], page: str | None, speak: Speak) -> int:
    """page: of the dashboard, where it is ours."""
    from mmcache.cache import Cache
    from mmcache.server import drain
    from mmcache.server.app import build
    from mmcache.server.exchange import Proxy
    from mmcache.server.journal import Journal
    from mmcache.server.meant import semantic_for
    from mmcache.server.upstream_http import HttpUpstream

    server = found.server
    listening = drain.listen(server.host, server.port)
    place = _address(server.host, listening.getsockname()[1])
    options: dict[str, Any] = {"root": default_root(), "semantic": semantic_for(server)} | dict(found.cache)
    if server.telemetry.hot_keys:
        options["prefetch"] = _hot_keys(server.telemetry, options.get("prefetch"))
    journal = Journal(as_json=speak.json, on=server.access_log)
    with (
        listening,
        journal.listening("mmcache"),
        Cache(**options) as cache,
        _watched(cache, server.telemetry) as tracer,
    ):
        frame = build(Proxy(cache, HttpUpstream(server), server), journal=journal, reload=settings, tracer=tracer)
        operations = frame.operations
        operations.cache = found.cache
        data = {
            "address": place,
            "openai_base_url": f"{place}/v1",
            "upstream": server.upstream,
            "root": str(cache.root),
        } | ({"dashboard": page} if page is not None else {})
        if speak.json:
            print(msgspec.json.encode(data).decode(), flush=True)
        else:
            lines = {"address": place, "upstream": server.upstream, "folder": cache.root}
            lines |= {"dashboard": page} if page is not None else {}
            show(speak, data, lambda: facts("mmcache serve", lines | {"clients": f"OPENAI_BASE_URL={place}/v1"}))
        app = None
        if server.webhook_secret is not None:
            from mmcache.integrations.ragflow.mounted import Mounted

            app = Mounted(frame, cache, server.webhook_secret)
        drain.run(frame, listening, drain_seconds=server.drain_seconds, reload=operations.hung_up, app=app)
    journal.flush()
    return Exit.DONE


@contextmanager
def _watched(cache: Cache, rules: TelemetryRules) -> Iterator[Tracer | None]:
    """Sends what the rules say; what makes spans of requests. Without a receiver nothing of it is loaded."""
    from mmcache.server.scraped import share_out

    if rules.otlp is None:
        if rules.metrics != "off":
            share_out(cache)
        yield None
        return
    from mmcache.telemetry import instrument

    with instrument(
        cache, otlp=rules.otlp, headers=_token(rules), sample=rules.sample, service=rules.service, region=rules.region
    ) as watch:
        from mmcache.telemetry.requests import Requests

        yield Requests(watch.tracer_provider, rules.sample)


def _hot_keys(rules: TelemetryRules, then: str | None) -> Prefetcher:
    """What says which keys are hot. then: the prefetcher that the configuration names."""
    from mmcache.hotkeys import HotKeys

    return HotKeys(otlp=rules.otlp, headers=_token(rules), service=rules.service or "mmcache", then=then)


def _token(rules: TelemetryRules) -> dict[str, str] | None:
    return None if rules.token is None else {"authorization": f"Bearer {rules.token}"}


def _say_tenant(found: Configured, speak: Speak) -> int:
    """From stdin, since the list of processes and the shell's history show what a command line says."""
    from mmcache.cache import Cache
    from mmcache.server.accounts import Accounts
    from mmcache.server.tenants import Tenants

    known = found.cache.get("secret")
    if known is None:
        folder = Folder(root=Path(found.cache.get("root", default_root())))
        require(folder)
        known = secret(folder)
    with Cache(memory="1MiB", secret=known) as cache:
        tenant = Tenants(cache, found.server.trust, Accounts()).of_key(sys.stdin.readline())
    show(speak, {"tenant": tenant}, lambda: tenant)
    return Exit.DONE


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
