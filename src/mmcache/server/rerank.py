"""`/rerank` and `/score`, as vLLM serves them (Jina's and Cohere's forms).

A score may rest on all documents of its list (listwise rerankers such as jina-reranker-v3), so by default the whole
list is one item. Where the rules say that the model scores pairs independently (`pairs = true`: cross-encoders,
bi-encoders, late interaction), each pair of query and document is an item, and only pairs that miss go upstream.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from blake3 import blake3

from mmcache.keys.framing import framed
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.scopes import Scope
from mmcache.server.batch_fields import SCORING, scored
from mmcache.server.batch_sending import (
    LARGE,
    Body,
    Odd,
    Read,
    apart,
    raw_fields,
    raw_items,
    read_field,
    read_model,
    read_usage,
    told_usage,
    unbilled,
)
from mmcache.server.batches import Batch, State, Value, answer
from mmcache.server.canonical.fields import NULL, Field, model_of, read_fields
from mmcache.server.canonical.request import Media, RefusedError
from mmcache.server.exchange import Answered, Asked, BypassedError, Proxy
from mmcache.server.limits import parse
from mmcache.server.media.parts import Unknown, all_identified

_json = msgspec.json.Encoder().encode
_RERANKED = {"id", "object", "created", "model", "usage", "results", "meta"}
_SCORED = {"id", "object", "created", "model", "usage", "data"}
_SIDES = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))
_TOP = {"top_n": Field(absent=NULL)}


class _Result(msgspec.Struct, forbid_unknown_fields=True):
    index: int
    relevance_score: float
    document: msgspec.Raw = msgspec.Raw(b"")


class _Score(msgspec.Struct, forbid_unknown_fields=True):
    index: int
    score: float
    object: str = "score"


_results = msgspec.json.Decoder(list[_Result]).decode
_scores = msgspec.json.Decoder(list[_Score]).decode


async def rerank(asked: Asked, proxy: Proxy) -> Answered:
    """See `Route`."""
    return await _answered(asked, proxy, "query", "documents", "results")


async def score(asked: Asked, proxy: Proxy) -> Answered:
    """See `Route`."""
    return await _answered(asked, proxy, "", "", "data")


RERANK, SCORE = rerank, score
ROUTES = {("POST", path): rerank for path in ("/rerank", "/v1/rerank", "/v2/rerank")} | {
    ("POST", path): score for path in ("/score", "/v1/score")
}


async def _answered(asked: Asked, proxy: Proxy, left: str, right: str, listed: str) -> Answered:
    if (known := State.of(proxy).memo.find(asked, proxy)) is not None:
        return known
    try:
        batch = await _read(asked, proxy, left, right, listed)
    except RefusedError as error:
        raise BypassedError(error.reason) from error
    return await answer(asked, proxy, batch)


async def _read(asked: Asked, proxy: Proxy, left: str, right: str, listed: str) -> Batch:
    request = await apart(len(asked.body) > LARGE, parse, asked.body)
    if not left:
        sides = [pair for pair in _SIDES if pair[0] in request and pair[1] in request]
        if len(sides) != 1:
            raise RefusedError("malformed")
        ((left, right),) = sides
    model = model_of(request)
    rest = {name: value for name, value in request.items() if name not in ("model", left, right)}
    fields = read_fields(rest, SCORING | _TOP if listed == "results" else SCORING)
    scope = proxy.cache.scopes.of(
        Signature(model_version=model, function=f"{listed} 1", modality="text", preprocess=proxy.settings.behind),
        *asked.realm,
    )
    trees: dict[str, list[tuple[Any, list[Media]]]] = {}
    for name in (left, right):
        given = request.get(name)
        items = enumerate(given) if isinstance(given, list) else [("", given)]
        trees[name] = []
        for place, each in items:
            found: list[Media] = []
            trees[name].append((scored(each, (name, place) if place != "" else (name,), found), found))
    parts = [medium for told in trees.values() for _, found in told for medium in found]
    known = await all_identified([medium.part for medium in parts], asked, proxy)
    if isinstance(known, Unknown):
        raise RefusedError(known.reason)
    media = {medium.place: identified for medium, identified in zip(parts, known, strict=True)}
    one, many = (
        [framed("scored", _dumped(tree), *(media[medium.place].identity for medium in found)) for tree, found in told]
        for told in trees.values()
    )
    top = fields.pop("top_n", None)
    if top == 0 and proxy.settings.kind == "vllm":  # which means all by it; others mean none, or refuse it
        top = None
    if (
        not (top is None or (type(top) is int and top > 0))
        or not many
        or (listed == "results" and isinstance(request[left], list))
    ):
        raise RefusedError("malformed")
    if len(one) != 1 and len(one) != len(many):
        raise RefusedError("malformed")
    if len(many) > asked.rules.most_inputs:
        raise RefusedError("too-many-inputs")
    shown = len(many) if top is None else min(top, len(many))
    original = Body(b"", request, media) if media else Body(asked.body)
    base = framed(listed, asked.path.encode(), left.encode(), right.encode(), _dumped(fields))
    form = _Form(listed, left, right, shown)
    if not (asked.rules.pairs and isinstance(request[right], list)):
        lists = (isinstance(request[left], list), isinstance(request[right], list))
        whole = framed("whole", base, _dumped([lists, top]), _framed(one), _framed(many))
        return Whole(model, scope, [_key(scope, whole)], original, form=form, count=len(many))
    pairs = [(one[0] if len(one) == 1 else one[place], many[place]) for place in range(len(many))]
    keys = [_key(scope, framed("pair", base, *pair)) for pair in pairs]
    return Pairs(model, scope, keys, original, form=form, request=request, cross=len(one) == 1)


def _dumped(tree: Any) -> bytes:
    return json.dumps(tree, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _framed(parts: Sequence[bytes]) -> bytes:
    return framed("list", *parts)


def _key(scope: Scope, told: bytes) -> Key:
    return Key(scope.digest, blake3(told, key=scope.salt).digest(length=16))


@dataclass(frozen=True, slots=True)
class _Form:
    """Names of this request's fields."""

    listed: str
    left: str
    right: str
    shown: int
    """Results that are told."""

    def read(self, body: bytes, count: int, shown: int) -> tuple[Mapping[str, Any], list[_Result] | list[_Score]]:
        """The envelope, and what it holds, checked. Raises `Odd`."""
        envelope = raw_fields(body)
        known = _RERANKED if self.listed == "results" else _SCORED
        if not envelope.keys() <= known or self.listed not in envelope:
            raise Odd("fields that are not known")
        try:
            found = (_results if self.listed == "results" else _scores)(envelope[self.listed])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Odd(str(error)) from error
        places = [one.index for one in found]
        if len(places) != shown or len(set(places)) != shown or not {*places} <= {*range(count)}:
            raise Odd("other results than were asked for")
        if self.listed == "data" and places != sorted(places):
            raise Odd("not in the order of the request")
        if not all(math.isfinite(_score_of(one)) for one in found):
            raise Odd("a score that is no number")
        return envelope, found


def _score_of(one: Any) -> float:
    found: float = one.score if isinstance(one, _Score) else one.relevance_score
    return found


@dataclass
class Whole(Batch):
    """A list as one item: (answer without what it cost, tokens, model)."""

    form: _Form = field(default=_Form("", "", "", 0))
    count: int = 0

    def body(self, places: Sequence[int]) -> Body:
        """See `Batch.body`."""
        return self.original

    def read(self, body: bytes, places: Sequence[int]) -> Read:
        """See `Batch.read`."""
        envelope, _ = self.form.read(body, self.count, self.form.shown)
        model, (usage, tokens) = read_model(envelope), read_usage(envelope)
        free = {name: bytes(raw) for name, raw in envelope.items()}
        for name in ("usage", "meta"):
            if name in free:
                free[name] = _json(_free(read_field(free[name]), name))
        return Read([(Body.of(free).raw, tokens, model)], envelope, usage)

    def assemble(self, values: Sequence[Value], envelope: Mapping[str, Any], usage: Any) -> bytes:
        """See `Batch.assemble`."""
        found: bytes = values[0][0]
        return found

    def same(self, stored: Value, computed: Value) -> tuple[bool, float]:
        """See `Batch.same`. Alike: 1 less the largest difference of two scores."""
        a, b = (
            {one.index: _score_of(one) for one in self.form.read(value[0], self.count, self.form.shown)[1]}
            for value in (stored, computed)
        )
        if a.keys() != b.keys():
            return False, 0.0
        return a == b, 1.0 - max(abs(a[place] - b[place]) for place in a)


def _free(value: Any, name: str) -> Any:
    """Nothing was used for this answer. Of Cohere's `meta` only what is billed."""
    if name == "usage":
        return unbilled(value)
    if isinstance(value, dict):
        return {n: unbilled(each) if n in ("billed_units", "tokens") else each for n, each in value.items()}
    return value


@dataclass
class Pairs(Batch):
    """A batch whose values are (score, the document as the upstream says it again, tokens, model)."""

    form: _Form = field(default=_Form("", "", "", 0))
    request: Mapping[str, Any] = field(default_factory=dict, repr=False)
    cross: bool = True
    """One on the left, for all on the right."""

    def body(self, places: Sequence[int]) -> Body:
        """See `Batch.body`. Without `top_n`: all scores are wanted."""
        form = self.form
        if len(places) == len(self.keys) == form.shown:
            return self.original
        sides = [form.right] if self.cross else [form.left, form.right]
        if media := self.original.media:
            moved = {place: at for at, place in enumerate(places)}
            tree = {name: value for name, value in self.request.items() if name != "top_n"}
            tree |= {side: [self.request[side][place] for place in places] for side in sides}
            kept = {}
            for (side, *rest), one in media.items():
                if side not in sides:
                    kept[(side, *rest)] = one
                elif rest[0] in moved:
                    kept[(side, moved[rest[0]], *rest[1:])] = one
            return Body(_json(tree), tree, kept)
        fields: dict[str, Any] = {n: raw for n, raw in raw_fields(self.original.raw).items() if n != "top_n"}
        for side in sides:
            items = raw_items(fields[side])
            fields[side] = b"[%b]" % b",".join(items[place] for place in places)
        return Body.of(fields)

    def read(self, body: bytes, places: Sequence[int]) -> Read:
        """See `Batch.read`."""
        envelope, found = self.form.read(body, len(places), len(places))
        model, (usage, tokens) = read_model(envelope), read_usage(envelope)
        values = [
            (_score_of(one), bytes(getattr(one, "document", b"")), tokens if len(places) == 1 else -1, model)
            for one in sorted(found, key=lambda one: one.index)
        ]
        return Read(values, envelope, usage)

    def assemble(self, values: Sequence[Value], envelope: Mapping[str, Any], usage: Any) -> bytes:
        """See `Batch.assemble`. Results by falling score; equal ones in the order of the request, as vLLM has them."""
        if self.form.listed == "data":
            told = [
                b'{"index":%d,"object":"score","score":%b}' % (place, _json(value[0]))
                for place, value in enumerate(values)
            ]
        else:
            order = sorted(range(len(values)), key=lambda place: -values[place][0])
            told = [_result(place, values[place]) for place in order[: self.form.shown]]
        fields: dict[str, bytes] = {"object": b'"list"'} if self.form.listed == "data" else {}
        if model := values[0][-1]:
            fields["model"] = _json(model)
        fields |= {name: bytes(raw) for name, raw in envelope.items()}
        return Body.of(fields | {self.form.listed: b"[%b]" % b",".join(told)} | told_usage(usage)).raw

    def same(self, stored: Value, computed: Value) -> tuple[bool, float]:
        """See `Batch.same`. Alike: 1 less the difference of the scores."""
        return stored[:2] == computed[:2] and stored[-1] == computed[-1], 1.0 - abs(stored[0] - computed[0])


def _result(place: int, value: Value) -> bytes:
    document = b'"document":%b,' % value[1] if value[1] else b""
    return b'{"index":%d,%b"relevance_score":%b}' % (place, document, _json(value[0]))
