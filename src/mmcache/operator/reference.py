"""The page about a resource's fields, made from its schema: docs/reference/multimodalcache.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mmcache.operator import crd, quantity, rules
from mmcache.operator.names import API_VERSION, FORCE_DELETE, KIND
from mmcache.operator.resource import OURS
from mmcache.operator.status_schema import status

_OPEN = "x-kubernetes-preserve-unknown-fields"
"""Of a part that Kubernetes itself describes."""
_HEAD = f"""# `{KIND}`

<!-- Made from the schema by `mmcache operator crd --format md`. -->

`{API_VERSION}`, short `mmc`: a Valkey cluster that grows with its load ([how to use it](../how-to/kubernetes.md)).
`kubectl explain mmc.spec` says the same.

"""


def page() -> str:
    """In Markdown."""
    fixed = " and ".join(f"`{name}`" for name in rules.FIXED)
    parts = [
        _HEAD,
        "## `spec`\n",
        *_table(crd.spec(cel=False), "", spec=True),
        f"\n{fixed} cannot be set, taken away or changed in a running cluster. `config` may not set what the operator\n"
        f"sets itself: {', '.join(f'`{name}`' for name in OURS)}.\n",
        f"\nThe resource's name: {rules.BAD_NAME.removeprefix('metadata.name ')}.\n",
        f'\nThe annotation `{FORCE_DELETE}: "true"` ends a deletion that drains at once.\n',
        "\n## `status`\n",
        *_table(status(), "", spec=False),
    ]
    return "".join(parts)


def _table(schema: dict[str, Any], at: str, *, spec: bool) -> Iterator[str]:
    yield (
        "| field | type | default | limits | |\n|---|---|---|---|---|\n"
        if spec
        else "| field | type | |\n|---|---|---|\n"
    )
    for path, found in _fields(schema, at):
        told = f"`{path}`", _type(found), *((_default(found), _limits(found)) if spec else ()), _tells(found)
        yield f"| {' | '.join(told)} |\n"


def _fields(schema: dict[str, Any], at: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, found in schema.get("properties", {}).items():
        inner = found.get("items", found)
        parts = inner.get("properties", {})
        deeper = bool(parts) and not any(_OPEN in part for part in parts.values())
        if not deeper or "description" in found:
            yield f"{at}{name}", found
        if deeper:
            yield from _fields(inner, f"{at}{name}{'[]' if 'items' in found else ''}.")


def _type(found: dict[str, Any]) -> str:
    if "x-kubernetes-int-or-string" in found:
        return "amount"
    if "additionalProperties" in found:
        return f"{found['additionalProperties']['type']}s by name"
    return str(found["type"])


def _default(found: dict[str, Any]) -> str:
    default = found.get("default")
    return (
        "" if default is None or default == {} else f"`{json.dumps(default) if isinstance(default, bool) else default}`"
    )


def _limits(found: dict[str, Any]) -> str:
    if "enum" in found:
        return ", ".join(f"`{one}`" for one in found["enum"])
    if "minimum" not in found:
        return ""
    if "x-kubernetes-int-or-string" in found:
        return f"{quantity.write(found['minimum'])} to {quantity.write(found['maximum'])}"
    return f"{'above ' if found.get('exclusiveMinimum') else ''}{found['minimum']:,} to {found['maximum']:,}"


def _tells(found: dict[str, Any]) -> str:
    return str(found.get("description") or found.get("items", {}).get("description", "")).replace("|", "\\|")
