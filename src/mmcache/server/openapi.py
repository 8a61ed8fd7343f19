"""`/mmcache/openapi.json`: the routes that are cached, as OpenAI has them, and the proxy's own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from mmcache.server.exchange import Route

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_MODEL: Schema = {"type": "string", "minLength": 1}
_TEXTS: Schema = {"type": "array", "items": _TEXT, "minItems": 1}
_TOKENS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_PART: Schema = {
    "oneOf": [
        {"type": "object", "required": ["type", "text"], "properties": {"type": {"const": "text"}, "text": _TEXT}},
        {
            "type": "object",
            "required": ["type", "image_url"],
            "properties": {
                "type": {"const": "image_url"},
                "image_url": {
                    "type": "object",
                    "required": ["url"],
                    "properties": {"url": _TEXT, "detail": {"enum": ["auto", "low", "high"]}},
                },
            },
        },
        {
            "type": "object",
            "required": ["type", "input_audio"],
            "properties": {
                "type": {"const": "input_audio"},
                "input_audio": {
                    "type": "object",
                    "required": ["data", "format"],
                    "properties": {"data": _TEXT, "format": {"enum": ["wav", "mp3"]}},
                },
            },
        },
    ]
}
_CONTENT: Schema = {"oneOf": [_TEXT, {"type": "array", "items": _PART, "minItems": 1}]}
_INPUT_PART: Schema = {
    "oneOf": [
        {
            "type": "object",
            "required": ["type", "text"],
            "properties": {"type": {"const": "input_text"}, "text": _TEXT},
        },
        {
            "type": "object",
            "required": ["type", "image_url", "detail"],
            "properties": {"type": {"const": "input_image"}, "image_url": _TEXT, "detail": {"enum": ["auto", "low"]}},
        },
    ]
}
_INPUT: Schema = {"oneOf": [_TEXT, {"type": "array", "items": _INPUT_PART, "minItems": 1}]}
_SAMPLING: dict[str, Schema] = {
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "top_p": {"type": "number", "minimum": 0, "maximum": 1},
    "seed": {"type": "integer"},
    "stream": {"type": "boolean"},
}


def _object(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "required": required, "properties": properties}


def _json(schema: Schema) -> Schema:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _form(**more: Schema) -> Schema:
    fields: dict[str, Schema] = {
        "file": {"type": "string", "format": "binary"}, "model": _MODEL, "prompt": _TEXT,
        "response_format": {"enum": ["json", "text", "srt", "verbose_json", "vtt"]},
        "temperature": {"type": "number", "minimum": 0, "maximum": 1},
    }  # fmt: skip
    return {
        "required": True,
        "content": {"multipart/form-data": {"schema": _object(["file", "model"], **fields, **more)}},
    }


_MESSAGE = _object(["role", "content"], role={"enum": ["system", "user", "assistant"]}, content=_CONTENT)
_ASKED = _object(["role", "content"], role={"enum": ["system", "developer", "user"]}, content=_INPUT)
_RERANK = _object(
    ["model", "query", "documents"],
    model=_MODEL,
    query=_TEXT,
    documents=_TEXTS,
    top_n={"type": "integer", "minimum": 1},
)
_SCORE = _object(
    ["model", "text_1", "text_2"], model=_MODEL, text_1={"oneOf": [_TEXT, _TEXTS]}, text_2={"oneOf": [_TEXT, _TEXTS]}
)
BODIES: dict[str, Schema] = (
    {
        "/v1/embeddings": _json(
            _object(
                ["model", "input"],
                model=_MODEL,
                input={"oneOf": [_TEXT, _TEXTS, _TOKENS, {"type": "array", "items": _TOKENS, "minItems": 1}]},
                encoding_format={"enum": ["float", "base64"]},
                dimensions={"type": "integer", "minimum": 1},
                user=_TEXT,
            )
        ),
        "/v1/chat/completions": _json(
            _object(
                ["model", "messages"],
                model=_MODEL,
                messages={"type": "array", "items": _MESSAGE, "minItems": 1},
                max_tokens={"type": "integer", "minimum": 1},
                n={"type": "integer", "minimum": 1},
                **_SAMPLING,
            )
        ),
        "/v1/responses": _json(
            _object(
                ["model", "input"],
                model=_MODEL,
                input={"oneOf": [_TEXT, {"type": "array", "items": _ASKED, "minItems": 1}]},
                instructions=_TEXT,
                store={"type": "boolean"},
                **_SAMPLING,
            )
        ),
        "/v1/audio/transcriptions": _form(language=_TEXT),
        "/v1/audio/translations": _form(),
    }
    | {path: _json(_RERANK) for path in ("/rerank", "/v1/rerank", "/v2/rerank")}
    | {path: _json(_SCORE) for path in ("/score", "/v1/score")}
)
"""Of requests; further fields are allowed, as servers have many of their own."""

_ERROR = _object(["error"], error=_object(["message", "type", "code"], message=_TEXT, type=_TEXT, code={}))
_REFUSED = {"description": "Refused, in OpenAI's form", "content": {"application/json": {"schema": _ERROR}}}
_WHAT_CAME = {"description": "What the upstream answers, or has answered before", "content": {"*/*": {}}}
_VERDICT = {
    "x-mmcache": {"schema": _TEXT, "description": "`hit`, `miss`, `partial`, `bypass` or `pass`; why; what was saved"}
}
_KEY = {"key": {"type": "http", "scheme": "bearer", "description": "The upstream's API key"}}
_ADMIN = {"admin": {"type": "http", "scheme": "bearer", "description": "The proxy's admin token"}}


def _answers(*refused: int) -> Schema:
    answered = {"200": _WHAT_CAME | {"headers": _VERDICT}}
    return answered | {str(status): _REFUSED for status in refused} | {"default": _REFUSED}


def _own(method: str, summary: str, *refused: int, **more: Any) -> Schema:
    done = {"description": "Done", "content": {"application/json": {"schema": {"type": "object"}}}}
    responses = {"200": done} | {str(status): _REFUSED for status in refused}
    return {method: {"summary": summary, "responses": responses} | more}


_SWITCH = _json(
    {**_object(["mode"], mode={"enum": ["on", "shadow", "off"]}, route=_TEXT), "additionalProperties": False}
)
_OWN: dict[str, Schema] = {
    "/healthz": _own("get", "Is the process alive?", 405),
    "/readyz": {
        "get": {
            "summary": "May requests be sent here: is the cache open, the upstream reachable, and no end near?",
            "responses": {
                code: {"description": text, "content": {"application/json": {"schema": {"type": "object"}}}}
                for code, text in (("200", "Yes"), ("503", "No"))
            },
        }
    },
    "/metrics": {
        "get": {
            "summary": "What was counted, for Prometheus; to programs of this machine, or with the admin token",
            "responses": {
                "200": {"description": "Text, or OpenMetrics by `accept`", "content": {"text/plain": {"schema": _TEXT}}}
            }
            | dict.fromkeys(("401", "404", "405"), _REFUSED),
        }
    },
    "/mmcache/openapi.json": _own("get", "This description", 405),
    "/mmcache/status": _own("get", "What was done and saved", 401, 404, security=[{"admin": []}]),
    "/mmcache/switch": _own(
        "post", "The kill switch", 400, 401, 404, 413, security=[{"admin": []}], requestBody=_SWITCH
    ),
    "/mmcache/reload": _own("post", "Read the configuration anew", 400, 401, 404, security=[{"admin": []}]),
}


def document(routes: Mapping[tuple[str, str], Route]) -> dict[str, Any]:
    """OpenAPI 3.1 of `routes` and of the proxy's own paths."""
    paths: dict[str, Schema] = {}
    for method, path in sorted(routes):
        paths.setdefault(path, {})[method.lower()] = {
            "summary": f"{path} of the upstream, cached",
            "security": [{"key": []}],
            "requestBody": BODIES.get(path, _json({"type": "object"})),
            "responses": _answers(400, 401, 403, 413, 415, 422, 429, 500, 502, 503, 504),
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "mmcache serve", "version": version("mmcache")},
        "paths": paths | _OWN,
        "components": {"securitySchemes": _KEY | _ADMIN},
    }
