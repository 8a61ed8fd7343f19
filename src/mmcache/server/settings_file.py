"""The configuration file of `mmcache serve`, in TOML. Secrets stand in the environment; the file names them."""

from __future__ import annotations

import ipaddress
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from mmcache.config_file import cache_arguments
from mmcache.model.errors import SettingsError
from mmcache.server.config import FetchRules, RouteRules, ServerSettings, TelemetryRules, TrustRules
from mmcache.server.header_kinds import may_tell_region
from mmcache.server.tenants import NAME, PLACE
from mmcache.settings import TelemetrySettings, from_environment, parse_bytes

TABLES = ("server", "upstream", "cache", "tenants", "trust", "fetch", "routes", "telemetry")
SERVER = {
    "host": "host", "port": "port", "drain_seconds": "drain_seconds", "rate": "rate", "at_once": "at_once",
    "access_log": "access_log",
    "admin_token_env": "admin_token", "webhook_secret_env": "webhook_secret",
}  # fmt: skip
UPSTREAM = {
    "url": "upstream", "kind": "kind", "video_uuids": "video_uuids", "version": "version",
    "connect_seconds": "connect_seconds",
    "silence_seconds": "upstream_seconds", "connections": "connections", "keepalive_seconds": "keepalive_seconds",
    "largest_answer_bytes": "largest_answer_bytes",
}  # fmt: skip
TRUST = {each.name: each.name for each in fields(TrustRules) if each.name != "front_token"} | {
    "front_token_env": "front_token", "secret_env": "secret",
}  # fmt: skip
FETCH = {each.name: each.name for each in fields(FetchRules)}
ROUTE = {each.name: each.name for each in fields(RouteRules)}
TELEMETRY = {each.name: each.name for each in fields(TelemetryRules) if each.name != "token"} | {"token_env": "token"}

SHORTEST_TOKEN = 16
T = TypeVar("T")


@dataclass(frozen=True)
class Configured:
    """What a file says."""

    server: ServerSettings
    cache: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments of `Cache`."""


def read(path: Path | None, **given: Any) -> Configured:
    """The settings in `path`; `given` (of the command line: fields of `ServerSettings` and `TelemetryRules`, `root`,
    `shared`; None = not given) hold instead. Raises `SettingsError`, which says where, and what may stand there."""
    where = "the command line" if path is None else str(path)
    try:
        text = "" if path is None else path.expanduser().read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the configuration {where}: {error}") from error
    if unknown := set(found) - set(TABLES):
        raise SettingsError(f"{where}: there is no table {_listed(unknown)}; there are {_listed(TABLES)}")
    given = {name: value for name, value in given.items() if value is not None}
    file = _File(where, text)
    trust = file.table(found.get("trust", {}), "trust", TRUST)
    secret = trust.pop("secret", None)
    if trust.get("authority") == "":
        trust["authority"] = None
    values = file.table(found.get("server", {}), "server", SERVER)
    values |= file.table(found.get("upstream", {}), "upstream", UPSTREAM)
    telemetry = file.table(found.get("telemetry", {}), "telemetry", TELEMETRY)
    telemetry |= {name: value for name, value in given.items() if name in TELEMETRY}
    known = TelemetrySettings.from_environment(otlp=telemetry.get("otlp"), sample=telemetry.get("sample"))
    telemetry |= {"otlp": known.otlp, "sample": float(known.sample)}
    values |= {name: value for name, value in given.items() if name not in ("root", "shared", *TELEMETRY)}
    if "upstream" not in values:
        raise SettingsError(f'{where}: say what stands behind the proxy: --upstream URL, or [upstream] url = "…"')
    server = replace(
        file.made(ServerSettings, "server] or [upstream", values),
        trust=file.made(TrustRules, "trust", trust),
        fetch=file.made(FetchRules, "fetch", file.table(found.get("fetch", {}), "fetch", FETCH)),
        routes=_routes(file, found.get("routes", {})),
        telemetry=file.made(TelemetryRules, "telemetry", telemetry),
    )
    server = replace(server, upstream=_address(server.upstream))
    check(server, where)
    cache = cache_arguments({name: found[name] for name in ("cache", "tenants") if name in found}, where)
    cache |= {name: value for name, value in given.items() if name in ("root", "shared")}
    if secret is not None:
        cache["secret"] = _secret(secret)
    return Configured(server, cache)


class _File:
    """Says where something stands."""

    def __init__(self, where: str, text: str) -> None:
        self._where, self._lines = where, text.splitlines()

    def table(self, table: Any, name: str, allowed: Mapping[str, str]) -> dict[str, Any]:
        """Its values by the names of our fields; what ends with `_env` is looked up, sizes are read."""
        if not isinstance(table, dict):
            raise SettingsError(f"{self._where}: [{name}] is a table, not {table!r}")
        values = {}
        for key, value in table.items():
            if key not in allowed:
                raise SettingsError(f"{self.place(key)}: [{name}] has no {key}; it takes {_listed(allowed)}")
            if key.endswith("_env"):
                value = self._from_environment(key, value)
            elif key.endswith("_bytes"):
                value = parse_bytes(value)
            values[allowed[key]] = value
        return values

    def _from_environment(self, key: str, name: Any) -> str:
        if not isinstance(name, str):
            raise SettingsError(f"{self.place(key)}: {key} is the name of an environment variable, in quotes")
        try:
            value = from_environment(name)
        except SettingsError:  # what stands there may be the secret itself, and this may be logged
            raise SettingsError(
                f"{self.place(key)}: {key} is the name of an environment variable, and none is called so"
            ) from None
        if len(value) < SHORTEST_TOKEN:
            raise SettingsError(f"{self.place(key)}: ${name} holds less than {SHORTEST_TOKEN} characters")
        return value

    def made(self, kind: type[T], name: str, values: Mapping[str, Any]) -> T:
        """`kind` from `values`, each of which must be of its type."""
        try:
            return msgspec.convert(values, kind, strict=True)
        except msgspec.ValidationError as error:
            key = re.split(r"[^a-z_]", str(error).rpartition("$.")[2])[0]
            raise SettingsError(f"{self.place(key)}: [{name}] {error}") from error

    def place(self, key: str) -> str:
        """The file and, where it can be told, the line of a key."""
        for number, line in enumerate(self._lines, 1):
            if re.match(rf'\s*"?{re.escape(key)}"?\s*=', line):
                return f"{self._where}, line {number}"
        return self._where


def _routes(file: _File, tables: Any) -> dict[str, RouteRules]:
    if not isinstance(tables, dict):
        raise SettingsError('routes are tables: [routes.default], [routes."/v1/embeddings"]')
    for path in tables:
        if path != "default" and not path.startswith("/"):
            raise SettingsError(f'{file.place(path)}: a route is a path in quotes, [routes."/v1/…"], not {path!r}')
    given = {path: file.table(table, f"routes.{path}", ROUTE) for path, table in tables.items()}
    base = given.get("default", {})
    return {path: file.made(RouteRules, f"routes.{path}", base | values) for path, values in given.items()}


def check(server: ServerSettings, where: str) -> None:
    """Raise `SettingsError` for values that make no sense."""
    trust, fetch = server.trust, server.fetch
    positive = {
        "drain_seconds": server.drain_seconds, "connect_seconds": server.connect_seconds,
        "silence_seconds": server.upstream_seconds, "keepalive_seconds": server.keepalive_seconds,
        "connections": server.connections, "rate": server.rate, "at_once": server.at_once,
        "authority_seconds": trust.authority_seconds,
        "timeout_seconds": fetch.timeout_seconds, "largest_answer_bytes": server.largest_answer_bytes,
        "largest_bytes": fetch.largest_bytes,
    }  # fmt: skip
    for path, rules in server.routes.items():
        positive |= {f"routes.{path}.{name}": getattr(rules, name)
                     for name in ("largest_body_bytes", "most_parts", "most_inputs", "ttl_seconds")}  # fmt: skip
        error = rules.semantic_max_error
        if error is not None and not 0 < error < 1:
            raise SettingsError(f"{where}: routes.{path}.semantic_max_error is between 0 and 1, not {error}")
    for name, value in positive.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise SettingsError(f"{where}: {name} is a number above 0, not {value}")
    if not 0 <= server.port <= 65_535:
        raise SettingsError(f"{where}: a port is between 0 (any that is free) and 65535, not {server.port}")
    if trust.anonymous is not None and not NAME.fullmatch(trust.anonymous):
        raise SettingsError(f"{where}: anonymous is a tenant's name: letters, digits and ._@-, not {trust.anonymous!r}")
    if trust.authority is not None and not trust.authority.startswith("/"):
        raise SettingsError(f'{where}: authority is a path of the upstream, or "" where it asks nobody for a key')
    _check_telemetry(server, where)
    for network in trust.front_networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise SettingsError(f"{where}: front_networks are like 10.0.0.0/8: {error}") from error


def _check_telemetry(server: ServerSettings, where: str) -> None:
    told, header = server.telemetry, server.trust.region_header
    if told.region and not PLACE.fullmatch(told.region):
        raise SettingsError(f"{where}: telemetry.region: 1 to 32 of a-z, 0-9 and -, not {told.region!r}")
    if len(told.service) > 128 or not told.service.isprintable():
        raise SettingsError(f"{where}: telemetry.service is a name of up to 128 characters, not {told.service!r}")
    if told.metrics == "token" and server.admin_token is None:
        raise SettingsError(f'{where}: telemetry.metrics = "token" needs server.admin_token_env')
    if header is not None and not may_tell_region(header):
        raise SettingsError(f"{where}: region_header is a header that means nothing else to the proxy, not {header!r}")


def _address(upstream: str) -> str:
    try:
        parts = urlsplit(upstream)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError as error:
        raise SettingsError(f"the upstream's address cannot be read: {error}") from error
    if not known or parts.query or parts.fragment or "@" in parts.netloc:
        raise SettingsError("the upstream's address is http://host:port or https://host, without a user or a query")
    path = parts.path.rstrip("/")
    if path.endswith("/v1"):
        raise SettingsError("give the upstream's address without /v1: the proxy sends whole paths")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _secret(text: str) -> bytes:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise SettingsError("what secret_env names holds 64 hexadecimal digits: openssl rand -hex 32")
    return bytes.fromhex(text)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
