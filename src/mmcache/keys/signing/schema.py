"""`schema_hash`: SHA-256 of what an OpenAPI 3 or JSON schema means: field names, types, nesting.

Key order, comments, titles, descriptions, examples, extensions, and the names of shared definitions do not count.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from mmcache.model.errors import InvalidInputError

_PROSE = frozenset(
    {"title", "description", "summary", "example", "examples", "externalDocs", "info", "servers", "tags", "operationId",
     "$comment", "$schema", "$id", "openapi", "deprecated", "components", "$defs", "definitions"}
)  # fmt: skip
_NAMED = frozenset(
    {"properties", "patternProperties", "paths", "responses", "content", "headers", "mapping", "inputs", "outputs"}
)
"""Maps whose keys are names, not keywords: a field called `title` counts."""
_UNORDERED = frozenset({"required", "enum", "type", "allOf", "anyOf", "oneOf", "parameters"})
_VALUES = frozenset({"default", "const", "enum"})
"""What stands here is data, not schema."""


def schema_hash(schema: Any) -> str:
    """SHA-256 (hex) of a pydantic class, a schema as dict, or a YAML or JSON file (Path) or text (bytes).

    Raises `InvalidInputError` for what is no schema, or refers to what is not in it.
    """
    document = _document(schema)
    text = json.dumps(_meaning(document, document, ()), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _document(schema: Any) -> Mapping[str, Any]:
    if hasattr(schema, "model_json_schema"):
        schema = schema.model_json_schema()
    if isinstance(schema, os.PathLike):
        try:
            schema = Path(schema).read_bytes()
        except OSError as error:
            raise InvalidInputError(f"cannot read the schema {os.fspath(schema)}: {error}") from error
    if isinstance(schema, bytes):
        try:
            schema = msgspec.yaml.decode(schema)  # JSON is YAML
        except ImportError as error:
            raise InvalidInputError("YAML schemas need PyYAML: pip install pyyaml") from error
        except msgspec.DecodeError as error:
            raise InvalidInputError(f"the schema is not YAML or JSON: {error}") from error
    if not isinstance(schema, Mapping):
        raise InvalidInputError(f"a schema is a mapping, a pydantic class or a file, not {type(schema).__name__}")
    return schema


def _meaning(node: Any, root: Mapping[str, Any], path: tuple[str, ...], named: bool = False) -> Any:
    if isinstance(node, list | tuple):
        return [_meaning(item, root, path) for item in node]
    if not isinstance(node, Mapping):
        return node
    if isinstance(node.get("$ref"), str) and not named:
        target = node["$ref"]
        if target in path:
            return {"recursion": len(path) - path.index(target)}  # relative, so that names do not matter
        return _meaning(_resolve(target, root), root, (*path, target))
    kept = {}
    for key, value in node.items():
        word = str(key)
        if named:
            kept[word] = _meaning(value, root, path)
        elif word not in _PROSE and not word.startswith("x-"):
            found = value if word in _VALUES else _meaning(value, root, path, named=word in _NAMED)
            kept[word] = _sorted(found) if word in _UNORDERED and isinstance(found, list) else found
    return kept


def _sorted(items: list[Any]) -> list[Any]:
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    if not reference.startswith("#/"):
        raise InvalidInputError(f"the schema refers to {reference}, outside itself; bundle it first")
    node: Any = root
    for part in reference[2:].split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, Mapping) or part not in node:
            raise InvalidInputError(f"the schema refers to {reference}, which is not in it")
        node = node[part]
    return node
