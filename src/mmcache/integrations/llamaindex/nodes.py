"""Nodes and responses as JSON text and back, exactly: what would come back as something else is not kept.

LlamaIndex's own way (`doc_to_json`) leaves out the data of media resources, and makes nodes of foreign classes into its
own; here the first is added, and the second is noticed, since whatever is kept is read back and compared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from llama_index.core.base.response.schema import Response
from llama_index.core.schema import BaseNode, MediaResource, NodeWithScore, QueryBundle
from llama_index.core.storage.docstore.utils import doc_to_json, json_to_doc

from mmcache.integrations.framework.results import Results, UnstorableError
from mmcache.keys.arguments import canonical_arguments
from mmcache.keys.framing import framed
from mmcache.model.errors import InvalidInputError

_RESOURCES = ("text_resource", "image_resource", "audio_resource", "video_resource")
_ASKED = {"query_str", "image_path", "custom_embedding_strs", "embedding"}


def plain(node: BaseNode) -> dict[str, Any]:
    """A node as JSON's types."""
    found = {"doc": doc_to_json(node)}
    data = {name: resource.data.decode() for name, resource in _resources(node) if resource.data is not None}
    return found | ({"data": data} if data else {})


def node_of(found: dict[str, Any]) -> BaseNode:
    """The node again."""
    node = json_to_doc(found["doc"])
    for name, data in found.get("data", {}).items():
        resource = getattr(node, name)
        held = {field: getattr(resource, field) for field in type(resource).model_fields}
        setattr(node, name, MediaResource(**{**held, "data": data.encode()}))
    return node


def _resources(node: BaseNode) -> list[tuple[str, Any]]:
    found = [(name, getattr(node, name, None)) for name in _RESOURCES]
    return [(name, resource) for name, resource in found if isinstance(resource, MediaResource)]


def nodes_text(nodes: Sequence[BaseNode]) -> str:
    """Raises `UnstorableError` for nodes that would not come back equal."""
    text = json.dumps([plain(node) for node in nodes])
    if list(nodes) != [node_of(one) for one in json.loads(text)]:
        raise UnstorableError("a node does not come back from JSON as it was")
    return text


def nodes_of(text: str) -> list[BaseNode]:
    """The nodes again."""
    return [node_of(one) for one in json.loads(text)]


def scored_text(found: list[NodeWithScore]) -> str:
    """Raises `UnstorableError`, as above."""
    text = json.dumps([[plain(one.node), None if one.score is None else float(one.score)] for one in found])
    if list(found) != scored_of(text):
        raise UnstorableError("a node does not come back from JSON as it was")
    return text


def scored_of(text: str) -> list[NodeWithScore]:
    """Nodes with their scores."""
    return [NodeWithScore(node=node_of(node), score=score) for node, score in json.loads(text)]


def response_text(response: Any) -> str:
    """Of a whole response. Raises `UnstorableError` for a stream, an empty one, or one that is an object."""
    if type(response) is not Response or not response.response:
        raise UnstorableError(f"a {type(response).__name__} is not kept")
    parts = [response.response, json.loads(scored_text(response.source_nodes)), response.metadata]
    text = json.dumps(parts)
    if response_of(text) != response:
        raise UnstorableError("a response does not come back from JSON as it was")
    return text


def response_of(text: str) -> Response:
    """The response again."""
    answer, sources, metadata = json.loads(text)
    return Response(response=answer, source_nodes=scored_of(json.dumps(sources)), metadata=metadata)


def query_parts(results: Results, query: QueryBundle, salt: bytes) -> bytes:
    """All of a query: its words exactly, its picture by content, vectors that somebody computed before.

    Raises `InvalidInputError` for what has no identity: an address, a field that is not known here.
    """
    if {field.name for field in fields(query)} != _ASKED:
        raise InvalidInputError(f"a {type(query).__name__} holds more than is known to matter")
    embedding = None if query.embedding is None else [float(x) for x in query.embedding]
    words = canonical_arguments([query.query_str, query.custom_embedding_strs, embedding])
    picture = b"" if query.image_path is None else results.picture(query.image_path, salt)
    return framed("query", words, picture)
