"""`cached_ingestion`: a pipeline whose transformations are not run again on what they have seen, also after a restart.

LlamaIndex's own keys of a transformation leave out pictures, functions, private settings and the documents' ids, and
join texts without a boundary; so two inputs that differ can share one. The keys here are made of whole nodes and whole
transformations. Ids that are random (as LlamaIndex makes them) count by their place: the results are given the ids of
the documents at hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from blake3 import blake3
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import BaseNode, TransformComponent

from mmcache.cache import Cache
from mmcache.fill import in_thread
from mmcache.integrations.framework.realm import Realm, TenantOption
from mmcache.integrations.framework.results import Results, Told
from mmcache.integrations.llamaindex.embedding import CachedEmbedding
from mmcache.integrations.llamaindex.events import tell
from mmcache.integrations.llamaindex.nodes import nodes_of, nodes_text, plain
from mmcache.integrations.llamaindex.retriever import facts_of
from mmcache.keys.arguments import canonical_arguments
from mmcache.keys.content import encoded_bytes
from mmcache.keys.framing import framed
from mmcache.keys.options import ContentOptions
from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.model.signature import Signature

KIND = "llamaindex transformation 1"
_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_PLACE = "random-id-"
Made = tuple[list[str], Sequence[BaseNode] | str]
_RESOURCES = ("image_resource", "audio_resource", "video_resource")


class CachedTransform(TransformComponent):  # type: ignore[misc]
    """`transformation`, with a cache in front: for nodes that it has seen before, it does not run.

    signature: says what it is in which version, where its settings cannot be read; else they are looked at with each
    call. Nodes with an address as their picture are not looked up. Raises `UnversionedModelError`, `SettingsError`.
    """

    transformation: Any = Field(exclude=True, description="The transformation behind.")
    _realm: Realm = PrivateAttr()
    _results: Results = PrivateAttr()
    _facts: Callable[[], str] = PrivateAttr()
    _again: tuple[Any, ...] = PrivateAttr()

    def __init__(
        self,
        transformation: TransformComponent,
        cache: Cache | Realm,
        *,
        signature: str | None = None,
        tenant: TenantOption = None,
        namespace: str | None = None,
        ttl: float | None = None,
    ) -> None:
        if not isinstance(transformation, TransformComponent):
            raise SettingsError(f"transformation is one of LlamaIndex, not {type(transformation).__name__}")
        super().__init__(transformation=transformation)
        self._realm = cache if isinstance(cache, Realm) else Realm(cache, tenant, namespace)
        self._results = Results(self._realm, KIND, type(transformation).__name__, _freeze, _thaw, ttl)
        self._facts = facts_of(transformation, signature)
        self._again = transformation, self._realm, signature, ttl

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _again, self._again

    @classmethod
    def class_name(cls) -> str:
        """As LlamaIndex names components."""
        return "CachedTransform"

    def facts_for_keys(self) -> str:
        """What the keys of other caches need to know of it."""
        return self._facts()

    def to_dict(self, **options: Any) -> dict[str, Any]:
        """Its configuration, without any secret of the transformation behind."""
        return {**super().to_dict(**options), "facts": blake3(self._facts().encode()).hexdigest()}

    def __call__(self, nodes: Sequence[BaseNode], **options: Any) -> Sequence[BaseNode]:
        """Transform nodes."""
        run = _Run(self._results, self._facts, nodes, options)
        return run.given(self._results.answer(run.question, lambda: run.made(self.transformation(nodes, **options))))

    async def acall(self, nodes: Sequence[BaseNode], **options: Any) -> Sequence[BaseNode]:
        """Transform nodes."""
        run = await in_thread(lambda: _Run(self._results, self._facts, nodes, options))

        async def compute() -> Made:
            return run.made(await self.transformation.acall(nodes, **options))

        return run.given(await self._results.aanswer(run.question, compute))


def cached_ingestion(
    pipeline: IngestionPipeline,
    cache: Cache,
    *,
    signature: Signature | str | None = None,
    tenant: TenantOption = None,
    namespace: str | None = None,
    ttl: float | None = None,
) -> IngestionPipeline:
    """The same pipeline with a cache in front of each transformation, and LlamaIndex's own cache off.

    >>> pipeline = cached_ingestion(IngestionPipeline(transformations=[SentenceSplitter(), embed]), Cache("cache"))

    An embedding model computes only texts that are new, one by one (`signature` is for one that names no model); what
    has a cache already stays. Raises `UnversionedModelError`.
    """
    realm = Realm(cache, tenant, namespace)

    def wrapped(one: TransformComponent) -> TransformComponent:
        if isinstance(one, CachedTransform | CachedEmbedding):
            return one
        if isinstance(one, BaseEmbedding):
            return CachedEmbedding(one, realm, signature=signature, ttl=ttl)
        return CachedTransform(one, realm, ttl=ttl)

    changed = {"transformations": [wrapped(one) for one in pipeline.transformations], "disable_cache": True}
    return pipeline.model_copy(update=changed)


class _Run:
    """One call: its question, made before the nodes may change, and the ids at hand."""

    def __init__(
        self, results: Results, facts: Callable[[], str], nodes: Sequence[BaseNode], options: dict[str, Any]
    ) -> None:
        self._ids: list[str] = []

        def parts(salt: bytes) -> bytes:
            text = json.dumps([plain(node) for node in nodes])  # in the order of its metadata: it is shown so
            if _PLACE in text:
                raise InvalidInputError("the nodes hold a text that stands for ids here")
            self._ids = list(dict.fromkeys(_RANDOM.findall(json.dumps([_ids(node) for node in nodes]))))
            files = [_files(node) for node in nodes]
            kinds = [f"{type(node).__module__}.{type(node).__qualname__}" for node in nodes]
            called = canonical_arguments([], {k: v for k, v in options.items() if k != "show_progress"})
            return framed("nodes", _placed(text, self._ids).encode(), *files, "|".join(kinds).encode(), called)

        self.question = results.question(facts, parts)

    def made(self, output: Sequence[BaseNode]) -> Made:
        """The ids of the call, and the nodes that came out."""
        return self._ids, output

    def given(self, told: Told) -> Sequence[BaseNode]:
        """The nodes for this call."""
        tell("transformation", told)
        ids, output = told.value
        return _nodes(output, ids, self._ids) if isinstance(output, str) else output


def _freeze(made: Made) -> str:
    assert not isinstance(made[1], str)
    return json.dumps([made[0], nodes_text(made[1])])


def _thaw(text: str) -> Made:
    ids, nodes = json.loads(text)
    return ids, str(nodes)


def _nodes(nodes: str, stored: list[str], ids: list[str]) -> list[BaseNode]:
    """The nodes that are stored, with the ids at hand. What was made with random ids gets others with other inputs."""
    if stored == ids:
        return nodes_of(nodes)
    renamed = dict(zip(stored, ids, strict=True))
    made = [node.id_ for node in nodes_of(nodes)]
    for one in made:
        if one not in renamed and _RANDOM.fullmatch(one):
            seed = blake3("|".join([one, *ids]).encode()).digest(length=16)
            renamed[one] = str(UUID(bytes=seed, version=4))
    return nodes_of(_RANDOM.sub(lambda found: renamed.get(found[0], found[0]), nodes))


def _ids(node: BaseNode) -> list[Any]:
    related = [one.node_id for r in node.relationships.values() for one in (r if isinstance(r, list) else [r])]
    return [node.id_, *related]


def _placed(text: str, ids: list[str]) -> str:
    places = {one: f"{_PLACE}{place}" for place, one in enumerate(ids)}
    return _RANDOM.sub(lambda found: places.get(found[0], found[0]), text)


def _files(node: BaseNode) -> bytes:
    """The bytes of files that a node names as its media. Raises `InvalidInputError` for addresses, unread ones."""
    resources = [getattr(node, name, None) for name in _RESOURCES]
    paths = [getattr(node, "image_path", None), *(getattr(one, "path", None) for one in resources)]
    addresses = [getattr(node, "image_url", None), *(getattr(one, "url", None) for one in resources)]
    if any(one is not None for one in addresses):
        raise InvalidInputError("a node's media are at an address, where they may change")
    found = [encoded_bytes(Path(path), "media", ContentOptions()) for path in paths if path is not None]
    return framed("files", *(blake3(one or b"").digest() for one in found))


def _again(transformation: Any, realm: Realm, signature: str | None, ttl: float | None) -> CachedTransform:
    return CachedTransform(transformation, realm, signature=signature, ttl=ttl)
