"""`CachedChatGenerator`: a cache in front of any chat generator, for requests that leave nothing to chance."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import Any

from haystack import component, default_from_dict
from haystack.core.serialization import component_to_dict

from mmcache.cache import Cache
from mmcache.integrations.haystack.chatting import (
    chat_bytes,
    deterministic,
    frozen_replies,
    thawed_chunks,
    thawed_replies,
)
from mmcache.integrations.haystack.config import CacheConfig
from mmcache.integrations.haystack.door import TENANT, Door, NotStored, digest_key, off_loop
from mmcache.integrations.haystack.signing import Signed
from mmcache.model.errors import InvalidInputError
from mmcache.model.key import Key

_CALLBACK = "streaming_callback"


@component
class CachedChatGenerator(Door):
    """Has the inputs and outputs of the generator that it wraps.

    Looked up are only requests with temperature 0 or a seed in `generation_kwargs` (the component's or the run's), and
    one reply; `sampled=True` allows any temperature. In the key: every message with its pictures and files by their
    bytes, the tools, all parameters. Kept are only replies that say that they are whole. Streams are recorded, and on a
    hit given to the callback again. Other arguments as for `CachedTextEmbedder`.
    """

    def __init__(
        self,
        generator: Any,
        cache: CacheConfig | Cache,
        signature: str | None = None,
        sampled: bool = False,
        tenant: str | None = None,
        per_tenant: bool = False,
        ttl: float | None = None,
    ) -> None:
        self._set_up([generator], cache, tenant, per_tenant, ttl)
        self.generator, self.signature, self.sampled = generator, signature, sampled
        self._signed = Signed(generator, signature, modality="chat")
        self._take_sockets(generator)

    def to_dict(self) -> dict[str, Any]:
        """For pipeline files. Raises `SerializationError` for a `Cache` that is no `CacheConfig`."""
        return self._to_dict(
            generator=component_to_dict(self.generator, "generator"), signature=self.signature, sampled=self.sampled,
            ttl=self.ttl,
        )  # fmt: skip

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CachedChatGenerator:
        """Opens nothing: `warm_up` does."""
        made: CachedChatGenerator = default_from_dict(cls, data)
        return made

    def run(self, **inputs: Any) -> dict[str, Any]:
        """See the wrapped component. What it, or the callback, raises is raised; a failure of the cache is not."""
        self.warm_up()
        outputs, chunks, callback = self._flow(inputs, False, self.generator.run)
        for chunk in chunks:
            callback(chunk)
        return outputs

    async def run_async(self, **inputs: Any) -> dict[str, Any]:
        """The async twin: the wrapped component's `run_async` where it has one, else its `run`, in a thread."""
        await self.warm_up_async()
        awaits = hasattr(self.generator, "run_async")
        outputs, chunks, callback = await off_loop(partial(self._flow, inputs, awaits), self.generator)
        for chunk in chunks:
            found = callback(chunk) if awaits else await asyncio.to_thread(callback, chunk)
            if inspect.isawaitable(found):
                await found
        return outputs

    def _flow(self, inputs: dict[str, Any], awaits: bool, run: Any) -> tuple[dict[str, Any], list[Any], Any]:
        """The outputs, chunks that are still to be streamed, and to whom."""
        tenant, given = inputs.pop(TENANT, None), dict(inputs)
        callback = given.pop(_CALLBACK, None) or getattr(self.generator, _CALLBACK, None)
        recorded: list[Any] = []
        asked = dict(inputs) if callback is None else inputs | {_CALLBACK: _recording(callback, recorded, awaits)}

        def key(cache: Cache) -> Key:
            own = getattr(self.generator, "generation_kwargs", None) or {}
            chosen = given.get("generation_kwargs") or {}
            if not (isinstance(own, dict) and isinstance(chosen, dict)):
                raise InvalidInputError("generation_kwargs is a dict")
            kwargs = {**own, **chosen}
            if not (self.sampled or deterministic(kwargs)) or kwargs.get("n") not in (None, 1):
                raise InvalidInputError("the request leaves its answer to chance: set temperature=0, or a seed")
            tools = given.get("tools")  # where it is not given, the generator's own: a parameter, in the signature
            rest = {
                name: value for name, value in self._given(given).items() if name not in ("generation_kwargs", "tools")
            }
            scope = self._signed_scope(cache, self._signed, tenant)
            return digest_key(scope, "haystack chat", chat_bytes(rest, kwargs, tools, callback is not None))

        value, hit = self._answer(key, lambda: frozen_replies(run(**asked), recorded))
        if isinstance(value, NotStored):
            return dict(value.value), [], callback
        return thawed_replies(value, hit), thawed_chunks(value) if hit else [], callback


def _recording(callback: Any, chunks: list[Any], awaits: bool) -> Any:
    """The same callback, which also writes down what it was given."""

    def record(chunk: Any) -> None:
        chunks.append(chunk)
        callback(chunk)

    async def record_async(chunk: Any) -> None:
        chunks.append(chunk)
        found = callback(chunk)
        if inspect.isawaitable(found):
            await found

    return record_async if awaits else record
