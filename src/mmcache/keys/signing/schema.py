"""`schema_hash`: SHA-256 of what an OpenAPI 3 or JSON schema means: field names, types, nesting.

Key order, comments, titles, descriptions, examples, extensions, and the names of shared definitions do not count.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from datetime import date, time
from pathlib import Path
from typing import Any

import msgspec

from mmcache.model.errors import InvalidInputError

_PROSE = frozenset(
    {"title", "description", "summary", "example", "examples", "externalDocs", "info", "servers", "tags", "operationId",
     "$comment", "$schema", "$id", "openapi", "deprecated", "components", "$defs", "definitions"}
)  # fmt: skip
_NAMED = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependentRequired", "callbacks", "paths", "responses",
     "content", "headers", "mapping", "inputs", "outputs"}
)  # fmt: skip
"""Maps whose keys are names, not keywords: a field called `title` counts."""
_UNORDERED = frozenset({"required", "enum", "type", "allOf", "anyOf", "oneOf", "parameters"})
_VALUES = frozenset({"default", "const", "enum"})
"""What stands here is data, not schema."""
MAX_NODES = 100_000


def schema_hash(schema: Any) -> str:
    """SHA-256 (hex) of a pydantic class, a schema as dict, or a YAML or JSON file (Path) or text (bytes).

    Raises `InvalidInputError` for what is no schema, or refers to what is not in it.
    """
    document = _document(schema)
    try:
        meaning = _Meaning(document).of(document, ())
        if not any(meaning.values() if isinstance(meaning, dict) else [meaning]):  # nothing but definitions
            meaning = _Meaning(document).definitions()
        text = json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_datum)
    except RecursionError as error:
        raise InvalidInputError("the schema is nested too deeply") from error
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
            raise InvalidInputError("YAML schemas need PyYAML: pip install 'mmcache[openapi]'") from error
        except msgspec.DecodeError as error:
            raise InvalidInputError(f"the schema is not YAML or JSON: {error}") from error
    if not isinstance(schema, Mapping):
        raise InvalidInputError(f"a schema is a mapping, a pydantic class or a file, not {type(schema).__name__}")
    return schema


class _Meaning:
    """What counts of a document, references resolved."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def of(self, node: Any, path: tuple[str, ...], named: bool = False) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:  # references of references multiply
            raise InvalidInputError(f"the schema has more than {MAX_NODES} parts when its references are resolved")
        if isinstance(node, list | tuple):
            return [self.of(item, path) for item in node]
        if not isinstance(node, Mapping):
            return node
        kept: dict[str, Any] = {}
        target = None if named or not isinstance(node.get("$ref"), str) else node["$ref"]
        for key, value in node.items():
            word = str(key)
            if named:
                kept[word] = self.of(value, path)
            elif (key != "$ref" or target is None) and word not in _PROSE and not word.startswith("x-"):
                found = _words(value) if word in _VALUES else self.of(value, path, named=word in _NAMED)
                kept[word] = _sorted(found) if word in _UNORDERED and isinstance(found, list) else found
        if target is None:
            return kept
        # What stands beside a reference (a default, a bound) counts as it would beside the schema itself.
        meant = self._target(target, path)
        return {**kept, "allOf": _sorted([meant, *kept.get("allOf", ())])} if kept else meant

    def definitions(self) -> Any:
        """Shared definitions by name, for a document that consists of them."""
        groups = {"$defs": self._root.get("$defs"), "definitions": self._root.get("definitions")}
        components = self._root.get("components")
        groups |= components if isinstance(components, Mapping) else {}
        return {str(name): self.of(group, (), named=True) for name, group in groups.items() if group}

    def _target(self, target: str, path: tuple[str, ...]) -> Any:
        if target in path:
            return {"recursion": len(path) - path.index(target)}  # relative, so that names do not matter
        return self.of(_resolve(target, self._root), (*path, target))


def _words(value: Any) -> Any:
    """Data with all keys as strings, as JSON has them."""
    if isinstance(value, Mapping):
        return {str(key): _words(item) for key, item in value.items()}
    return [_words(item) for item in value] if isinstance(value, list | tuple) else value


def _datum(value: Any) -> Any:
    """What YAML has and JSON lacks."""
    if isinstance(value, set | frozenset):
        return _sorted(list(value))
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, date | time):
        return value.isoformat()
    raise InvalidInputError(f"the schema holds a {type(value).__qualname__}, which is no JSON")


def _sorted(items: list[Any]) -> list[Any]:
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True, default=_datum))


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    if not reference.startswith("#/"):
        raise InvalidInputError(f"the schema refers to {reference}, outside itself; bundle it first")
    node: Any = root
    for part in reference[2:].split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and part.isdecimal() and int(part) < len(node):
            node = node[int(part)]
            continue
        if not isinstance(node, Mapping) or part not in node:
            raise InvalidInputError(f"the schema refers to {reference}, which is not in it")
        node = node[part]
    return node
