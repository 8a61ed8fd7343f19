"""Schema hashes: meaning counts, wording does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pydantic
import pytest

from mmcache.keys.signing import describe, schema_hash
from mmcache.model.errors import InvalidInputError, UnversionedModelError

YAML = b"""
openapi: 3.1.0
info: {title: Encoder, version: "1"}   # a comment
paths:
  /embed:
    post:
      requestBody:
        content:
          application/json:
            schema: {$ref: '#/components/schemas/Picture'}
      responses: {default: {description: ok}, '200': {description: fine}}
components:
  schemas:
    Picture:
      description: A picture.
      type: object
      required: [width, title]
      properties:
        width: {type: integer, description: pixels}
        title: {type: string}
        parts: {type: array, items: {$ref: '#/components/schemas/Picture'}}
"""

SAME = {
    "a comment": (b"# a comment", b"# another"),
    "the title of the document": (b"title: Encoder", b"title: Other"),
    "a description": (b"A picture.", b"An image."),
    "the name of a shared definition": (b"Picture", b"Image"),
    "the order of required": (b"[width, title]", b"[title, width]"),
    "the order of keys": (b"{type: integer, description: pixels}", b"{description: pixels, type: integer}"),
}
OTHER = {
    "a field's name": (b"width", b"height"),
    "a field called like prose": (b"        title: {type: string}\n", b""),
    "a type": (b"integer", b"number"),
    "nesting": (b"type: array, items: {$ref: '#/components/schemas/Picture'}", b"type: array, items: {type: object}"),
    "what is required": (b"[width, title]", b"[width]"),
    "a response": (b"default: {description: ok}, ", b""),
    "a path": (b"/embed", b"/encode"),
}


@pytest.mark.parametrize("what", SAME)
def test_wording_does_not_count(what: str) -> None:
    assert SAME[what][0] in YAML
    assert schema_hash(YAML.replace(*SAME[what])) == schema_hash(YAML)


@pytest.mark.parametrize("what", OTHER)
def test_meaning_counts(what: str) -> None:
    assert OTHER[what][0] in YAML
    assert schema_hash(YAML.replace(*OTHER[what])) != schema_hash(YAML)


def test_pydantic_dict_and_file_agree(tmp_path: Path) -> None:
    class Inner(pydantic.BaseModel):
        n: int

    class Outer(pydantic.BaseModel):
        """Words."""

        inner: list[Inner]
        name: str = "x"

    class Renamed(pydantic.BaseModel):
        name: str = "x"
        inner: list[Inner] = pydantic.Field(description="words")

    schema = Outer.model_json_schema()
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema))
    assert schema_hash(Outer) == schema_hash(schema) == schema_hash(path) == schema_hash(Renamed)
    assert schema_hash(Inner) != schema_hash(Outer)
    assert len(schema_hash(Inner)) == 64

    with pytest.raises(UnversionedModelError, match="version"):
        describe(Outer)
    found = describe(Outer, version="1.2")
    assert (found.schema_hash, found.model_version) == (schema_hash(Outer), "1.2")
    assert describe(path, version="1.2") == found
    assert describe("m 1", schema=Outer).schema_hash == schema_hash(Outer)


def test_bad_schemas_are_refused(tmp_path: Path) -> None:
    bad: list[Any] = [b"[1, 2", b"- a\n- b", b"!!python/object:os.system {}", 5, tmp_path / "absent.yaml"]
    bad += [{"$ref": "#/nowhere"}, {"$ref": "https://elsewhere/schema"}]
    for schema in bad:
        with pytest.raises(InvalidInputError):
            schema_hash(schema)


DEFS = {"$defs": {"A": {"type": "object"}}}
PAIRS: dict[str, tuple[Any, Any]] = {
    "a default beside a reference": (
        {"properties": {"a": {"$ref": "#/$defs/A", "default": 1}}} | DEFS,
        {"properties": {"a": {"$ref": "#/$defs/A", "default": 2}}} | DEFS,
    ),
    "a bound beside a reference": ({"$ref": "#/$defs/A", "maxProperties": 1} | DEFS, {"$ref": "#/$defs/A"} | DEFS),
    "a document of definitions": ({"$defs": {"A": {"type": "string"}}}, {"$defs": {"A": {"type": "integer"}}}),
    "an OpenAPI document of components": (
        {"openapi": "3.0.0", "paths": {}, "components": {"schemas": {"title": {"type": "string"}}}},
        {"openapi": "3.0.0", "paths": {}, "components": {"schemas": {"title": {"type": "integer"}}}},
    ),
    "a field called like prose that others need": (
        {"dependentRequired": {"title": ["a"]}},
        {"dependentRequired": {"title": ["b"]}},
    ),
    "a date": (b"default: 2020-01-01", b"default: 2020-01-02"),
    "keys of data": ({"default": {1: 2, "b": 3}}, {"default": {1: 2, "c": 3}}),
    "bytes": (b"default: !!binary aGVsbG8=", b"default: !!binary aGVsbG9v"),
}


@pytest.mark.parametrize("what", PAIRS)
def test_these_count_too(what: str) -> None:
    one, two = PAIRS[what]
    assert schema_hash(one) == schema_hash(one) != schema_hash(two)


def test_schemas_that_grow_without_end_are_refused() -> None:
    deep: dict[str, Any] = {}
    inner = deep
    for _ in range(3000):
        inner["items"] = {}
        inner = inner["items"]
    doubling = {f"D{i}": {"allOf": [{"$ref": f"#/$defs/D{i - 1}"}] * 2} for i in range(1, 30)}
    for schema in (deep, {"$ref": "#/$defs/D29", "$defs": {"D0": {"type": "string"}} | doubling}):
        with pytest.raises(InvalidInputError):
            schema_hash(schema)
