"""Arguments of `Cache` from a file in TOML: `[cache]`, `[cache.shared]` and `[tenants.NAME]`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from mmcache.model.errors import SettingsError
from mmcache.settings import SharedSettings, Tenant, parse_bytes

CONFIGURABLE = (
    "root", "memory", "disk", "policy", "admission", "ttl", "references", "stale_while_revalidate", "codec", "tenant",
    "namespace", "mode", "verify_share", "shared", "prefetch",
)  # fmt: skip
"""Arguments of `Cache` that a file may give."""

_TEXTS = {"root", "policy", "admission", "references", "tenant", "namespace", "mode", "shared", "prefetch"}
"""Those that are texts in a file; `shared` may be a table, too."""

SHARED = {each.name: str(each.type) for each in fields(SharedSettings) if each.name != "password"}
"""What `[cache.shared]` takes, and of which type. No password: that stands in the environment."""


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Arguments of `Cache` from a TOML file: its table `[cache]` and, as `tenants`, `[tenants.NAME]`.

    Raises `SettingsError` for a file that cannot be read, is no TOML, or has other tables.
    """
    try:
        with Path(path).expanduser().open("rb") as file:
            found = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the configuration {path}: {error}") from error
    return cache_arguments(found, str(path))


def cache_arguments(found: dict[str, Any], path: str) -> dict[str, Any]:
    """The same, of a file that was parsed; `path` is what errors call it."""
    found = dict(found)
    arguments, tenants = found.pop("cache", {}), found.pop("tenants", {})
    if found or not isinstance(arguments, dict) or not isinstance(tenants, dict):
        raise SettingsError(f"{path} has tables [cache] and [tenants.NAME] only, not {', '.join(found) or 'these'}")
    if unknown := set(arguments) - set(CONFIGURABLE):
        raise SettingsError(f"{path}: [cache] has no {_listed(unknown)}; it takes {_listed(CONFIGURABLE)}")
    arguments = dict(arguments)
    shared = arguments.pop("shared") if isinstance(arguments.get("shared"), dict) else None
    for name in _TEXTS & set(arguments):
        if not isinstance(arguments[name], str):
            raise SettingsError(f"{path}: {name} is a text in quotes, not {arguments[name]!r}")
    for name, options in tenants.items():
        if not isinstance(options, dict) or set(options) - {"service", "quota"}:
            raise SettingsError(f"{path}: [tenants.{name}] takes service and quota, not {options!r}")
    if tenants:
        arguments["tenants"] = {name: Tenant(**options) for name, options in tenants.items()}
    if shared is not None:
        arguments["shared"] = _shared(shared, path)
    return arguments


def _shared(table: Mapping[str, Any], path: str) -> SharedSettings:
    if unknown := set(table) - set(SHARED):
        raise SettingsError(f"{path}: [cache.shared] has no {_listed(unknown)}; it takes {_listed(SHARED)}")
    if "url" not in table:
        raise SettingsError(f'{path}: [cache.shared] says where: url = "valkeys://host:6379"')
    values = dict(table)
    for name, value in table.items():
        if name.endswith("_bytes"):
            values[name] = parse_bytes(value)
        elif ("str" in SHARED[name]) != isinstance(value, str) or (SHARED[name] == "bool") != isinstance(value, bool):
            # Not the value itself: it may be an address with a password.
            raise SettingsError(f"{path}: [cache.shared] {name} is of type {SHARED[name].removesuffix(' | None')}")
    return SharedSettings(**values)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
