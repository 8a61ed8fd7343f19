"""`POST /v1/embeddings`: a block for each text, list of tokens, object or conversation that is embedded.

Texts are the same with the same code points: what a tokenizer makes of two spellings of one letter is its own affair.
How numbers are written (`encoding_format`) is part of the key, but for an upstream that is known to be vLLM, which
writes the float32 itself in both forms, so that one block answers both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from blake3 import blake3

from mmcache.keys.framing import framed
from mmcache.model.errors import InvalidInputError
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.server.batch_fields import EMBEDDINGS, conversation
from mmcache.server.batch_sending import (
    LARGE,
    Body,
    Odd,
    Read,
    apart,
    raw_fields,
    raw_items,
    read_model,
    read_usage,
    told_usage,
)
from mmcache.server.batches import Batch, State, Value, answer
from mmcache.server.canonical.fields import model_of, read_fields
from mmcache.server.canonical.request import Media, RefusedError
from mmcache.server.exchange import Answered, Asked, BypassedError, Proxy
from mmcache.server.limits import parse
from mmcache.server.media.parts import Unknown, all_identified
from mmcache.server.vectors import DECIMAL, DOUBLE, PACKED, Vector, of_numbers, of_packed

_json = msgspec.json.Encoder().encode
_ENVELOPE = {"object", "data", "model", "usage", "id", "created"}


class _Embedding(msgspec.Struct, forbid_unknown_fields=True):
    index: int
    embedding: list[float] | str
    object: str = "embedding"


_embedding = msgspec.json.Decoder(_Embedding).decode


async def embeddings(asked: Asked, proxy: Proxy) -> Answered:
    """See `Route`."""
    if (known := State.of(proxy).memo.find(asked, proxy)) is not None:
        return known
    try:
        batch = await _read(asked, proxy)
    except RefusedError as error:
        raise BypassedError(error.reason) from error
    return await answer(asked, proxy, batch)


ROUTE = embeddings
ROUTES = {("POST", "/v1/embeddings"): embeddings}


async def _read(asked: Asked, proxy: Proxy) -> Embeddings:
    large = len(asked.body) > LARGE
    request = await apart(large, parse, asked.body)
    model, packed = model_of(request), _packed(request)
    name = "messages" if "messages" in request else "input"
    if {"messages", "input"} <= request.keys():
        raise RefusedError("malformed")
    others = ("model", "input", "messages", "encoding_format")
    fields = read_fields({n: value for n, value in request.items() if n not in others}, EMBEDDINGS)
    shared = proxy.settings.kind == "vllm"
    scope = proxy.cache.scopes.of(
        Signature(model_version=model, function="/v1/embeddings 1", modality="text", preprocess=proxy.settings.behind),
        *asked.realm,
    )
    told = json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    form = b"float32" if shared else b"packed" if packed else b"numbers"
    base = blake3(framed("embeddings", asked.path.encode(), form, told), key=scope.salt)
    media: list[Media] = []
    told_items, listed = await apart(large, _items, request.get(name), name, media)
    if len(told_items) > asked.rules.most_inputs:
        raise RefusedError("too-many-inputs")
    shown = await all_identified([one.part for one in media], asked, proxy)
    if isinstance(shown, Unknown):
        raise RefusedError(shown.reason)
    keys, at = [], 0
    for kind, raw, count in told_items:
        hasher = base.copy()
        hasher.update(framed(kind, raw, *(shown[number].identity for number in range(at, at + count))))
        at += count
        keys.append(Key(scope.digest, hasher.digest(length=16)))
    original = Body(asked.body)
    if media:
        original = Body(b"", request, {one.place: shown[number] for number, one in enumerate(media)})
    dimensions = fields.get("dimensions")
    return Embeddings(
        model, scope, keys, original, request=request, name=name, listed=listed, packed=packed, shared=shared,
        dimensions=dimensions if type(dimensions) is int else None,
    )  # fmt: skip


def _packed(request: Mapping[str, Any]) -> bool:
    """Whether vectors are asked for in base64."""
    form = request.get("encoding_format")
    if form not in (None, "float", "base64"):
        raise RefusedError("encoding-format")
    return form == "base64"


def _items(found: Any, name: str, media: list[Media]) -> tuple[list[tuple[str, bytes, int]], bool]:
    """Kind, bytes for the key, and number of media of each item; and whether they are elements of a list."""
    if name == "messages":
        batched = isinstance(found, list) and bool(found) and all(isinstance(each, list) for each in found)
        told = []
        for number, each in enumerate(found) if batched else [(-1, found)]:
            before = len(media)
            tree = conversation(each, ("messages", number) if batched else ("messages",), media)
            shifted = _from_zero(tree, before)
            told.append(("messages", _dumped(shifted), len(media) - before))
        return told, batched
    if isinstance(found, str):
        return [("text", found.encode(), 0)], False
    if not isinstance(found, list) or not found:
        raise RefusedError("malformed")
    kinds = set(map(type, found))
    if kinds == {str}:
        return [("text", each.encode(), 0) for each in found], True
    if kinds == {int}:
        return [("tokens", _tokens(found), 0)], False
    if kinds == {list}:
        return [("tokens", _tokens(each), 0) for each in found], True
    if kinds == {dict}:
        return [_object(each) for each in found], True
    raise RefusedError("malformed")


def _tokens(found: list[Any]) -> bytes:
    if not found or set(map(type, found)) != {int}:
        raise RefusedError("malformed")
    return b",".join(b"%d" % token for token in found)


def _object(found: dict[str, Any]) -> tuple[str, bytes, int]:
    """Jina's `{"text": …}` and `{"image": …}`; a picture by its exact data URL: a server may fetch anything else."""
    if len(found) == 1:
        ((name, value),) = found.items()
        if isinstance(value, str) and (name == "text" or (name == "image" and value.startswith("data:"))):
            return f"object {name}", value.encode(), 0
        if name == "image" and isinstance(value, str):
            raise RefusedError("remote-media")
    raise RefusedError("unknown-part")


def _from_zero(tree: Any, before: int) -> Any:
    """The same conversation with its media numbered from 0, wherever in the batch it stands."""
    if isinstance(tree, list):
        if len(tree) == 2 and tree[0] == "media" and type(tree[1]) is int:
            return ["media", tree[1] - before]
        return [_from_zero(each, before) for each in tree]
    return (
        {**tree, "content": _from_zero(tree["content"], before)} if isinstance(tree, dict) and "role" in tree else tree
    )


def _dumped(tree: Any) -> bytes:
    return json.dumps(tree, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


@dataclass
class Embeddings(Batch):
    """A batch whose values are (form, bytes, tokens, model); see `vectors`."""

    request: Mapping[str, Any] = field(default_factory=dict, repr=False)
    name: str = "input"
    listed: bool = True
    packed: bool = False
    shared: bool = False
    dimensions: int | None = None

    def body(self, places: Sequence[int]) -> Body:
        """See `Batch.body`. All other fields go as they were written."""
        if len(places) == len(self.keys):
            return self.original
        if media := self.original.media:
            moved = {place: at for at, place in enumerate(places)}
            tree = {**self.request, self.name: [self.request[self.name][place] for place in places]}
            kept = {(at, moved[n], *rest): one for (at, n, *rest), one in media.items() if n in moved}
            return Body(_json(tree), tree, kept)
        fields: dict[str, Any] = raw_fields(self.original.raw)
        items = raw_items(fields[self.name])
        return Body.of({**fields, self.name: b"[%b]" % b",".join(items[place] for place in places)})

    def read(self, body: bytes, places: Sequence[int]) -> Read:
        """See `Batch.read`."""
        envelope = raw_fields(body)
        if not envelope.keys() <= _ENVELOPE or "data" not in envelope:
            raise Odd("fields that are not known")
        try:
            data = [_embedding(raw) for raw in raw_items(envelope["data"])]  # one by one: others' threads may go on
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Odd(str(error)) from error
        model, (usage, tokens) = read_model(envelope), read_usage(envelope)
        if len(places) > 1:
            tokens = -1
        values = []
        for place, one in enumerate(data):
            if one.index != place or one.object != "embedding":
                raise Odd("not in the order of the request")
            vector = self._vector(one.embedding)
            values.append((vector.form, vector.raw, tokens, model))
        return Read(values, envelope, usage)

    def _vector(self, found: list[float] | str) -> Vector:
        try:
            vector = of_packed(found) if isinstance(found, str) else of_numbers(found)
        except InvalidInputError as error:
            raise Odd(str(error)) from error
        if self.dimensions is not None and vector.length != self.dimensions:
            raise Odd("another number of dimensions than was asked for")
        if isinstance(found, str) and not self.packed:
            raise Odd("base64 that was not asked for")
        if self.shared and (vector.form in (DECIMAL, DOUBLE) or isinstance(found, str) != self.packed):
            raise Odd("not the numbers that vLLM writes")
        return vector

    def assemble(self, values: Sequence[Value], envelope: Mapping[str, Any], usage: Any) -> bytes:
        """See `Batch.assemble`."""
        written: dict[int, bytes] = {}
        data = []
        for place, value in enumerate(values):
            text = written.get(id(value))
            if text is None:
                text = written[id(value)] = self._written(Vector(value[0], value[1]))
            data.append(b'{"object":"embedding","index":%d,"embedding":%b}' % (place, text))
        fields: dict[str, bytes] = {"object": b'"list"', "data": b""}
        if model := values[0][-1]:
            fields["model"] = _json(model)
        fields |= {name: bytes(raw) for name, raw in envelope.items()}
        return Body.of(fields | {"data": b"[%b]" % b",".join(data)} | told_usage(usage)).raw

    def _written(self, vector: Vector) -> bytes:
        packed = self.packed if self.shared else vector.form == PACKED
        return vector.packed() if packed else vector.numbers()

    def fit(self, values: Sequence[Value]) -> bool:
        """See `Batch.fit`. And of one length."""
        return len({(value[-1], Vector(value[0], value[1]).length) for value in values}) <= 1

    def same(self, stored: Value, computed: Value) -> tuple[bool, float]:
        """See `Batch.same`. Alike: the cosine."""
        a, b = Vector(stored[0], stored[1]).doubles(), Vector(computed[0], computed[1]).doubles()
        if a.shape != b.shape:
            return False, 0.0
        norms = float(np.linalg.norm(a) * np.linalg.norm(b))
        equal = bool(np.array_equal(a, b)) and stored[-1] == computed[-1]
        return equal, 1.0 if equal else float(a @ b) / norms if norms else 0.0
