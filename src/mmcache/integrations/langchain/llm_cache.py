"""`MMCache`: what `set_llm_cache` takes. Answers survive restarts and are shared by processes, per tenant."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

from blake3 import blake3
from langchain_core.caches import BaseCache

from mmcache.cache import Cache
from mmcache.fill import in_thread
from mmcache.forks import Lock
from mmcache.integrations.framework.held import erase
from mmcache.integrations.framework.realm import Realm, TenantOption
from mmcache.integrations.framework.results import UnstorableError
from mmcache.integrations.framework.ways import by
from mmcache.integrations.langchain.answers import answers_of, text_of
from mmcache.integrations.langchain.asked import Pictures, by_pixels, why_not
from mmcache.keys.content import identify
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.model.errors import MMCacheError, SettingsError
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.settings import parse_ttl

KIND = "langchain answers 1"
_MOST_ASKED = 4096


class MMCache(BaseCache):  # type: ignore[misc]
    """A cache of models' answers.

    >>> set_llm_cache(MMCache(Cache("~/.cache/mmcache")))

    As LangChain's caches do, it keeps the answer to any call; `deterministic_only` keeps those at temperature 0 or with
    a seed. Not looked up: what LangChain's key does not describe (see `bypassed`). Not kept: what is cut off, filtered,
    empty or malformed. LangChain asks no cache when it streams.

    signature: which model this is, in which version, for a model class that names none; give each such model a cache
    of its own, `Model(cache=MMCache(…, signature="mine 1"))`. pictures: `"pixels"` = a picture sent in another
    encoding is the same; `"exact"` compares files. remote_media: look prompts up that name media by address, as if what
    is there never changed. tenant, namespace, ttl: as everywhere.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        signature: str | None = None,
        deterministic_only: bool = False,
        pictures: Pictures = "exact",
        remote_media: bool = False,
        tenant: TenantOption = None,
        namespace: str | None = None,
        ttl: float | None = None,
    ) -> None:
        if pictures not in ("exact", "pixels"):
            raise SettingsError(f'pictures is "exact" or "pixels", not {pictures!r:.40}')
        if signature is not None and not signature:
            raise SettingsError("signature='' names no version; pass e.g. signature='my-model 1.0'")
        parse_ttl(ttl)
        self._realm, self._ttl, self._pictures = Realm(cache, tenant, namespace), ttl, pictures
        self._signature = Signature(function=KIND, model_version=KIND, preprocess=signature or "", modality="text")
        self._strict = {
            "named": signature is not None, "deterministic_only": deterministic_only, "remote_media": remote_media,
        }  # fmt: skip
        self._asked: OrderedDict[Key, float] = OrderedDict()
        self._lock = Lock()
        self.bypassed: Counter[str] = Counter()
        """Lookups that were passed by, by reason: `unnamed-model`, `parameters` or `message` (an object that has no
        content), `remote-media`, `not-deterministic`, `tenant`, `failed`."""

    def lookup(self, prompt: str, llm_string: str) -> list[Any] | None:
        """The stored answer, or None."""
        key = self._key(prompt, llm_string, counted=True)
        if key is None:
            return None
        try:
            with by("langchain"):
                make = self._realm.cache.answers.look_up([key])[0].make
            if make is not None:
                return answers_of(str(make()))
        except MMCacheError as error:
            self._realm.failed(f"not looked up: {type(error).__name__}")
        except (ValueError, KeyError, TypeError) as error:  # another release of LangChain wrote it
            self._realm.failed(f"a stored answer could not be read ({type(error).__name__}); it is computed anew")
        with self._lock:
            self._asked[key] = time.monotonic()
            if len(self._asked) > _MOST_ASKED:
                self._asked.popitem(last=False)
        return None

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Any]) -> None:
        """Keep an answer, where it is whole."""
        key = self._key(prompt, llm_string, counted=False)
        if key is None:
            return
        with self._lock:
            since = self._asked.pop(key, None)
        try:
            cost = 0.0 if since is None else time.monotonic() - since
            self._realm.cache.put(key, text_of(return_val), cost=cost, ttl=self._ttl)
        except UnstorableError:
            pass
        except MMCacheError as error:
            self._realm.failed(f"not kept: {type(error).__name__}")

    def clear(self, **kwargs: Any) -> None:
        """Erase the answers of this tenant and namespace, in every tier; whatever else is cached stays."""
        tenant = self._realm.tenant()
        if tenant is not None:
            erase(self._realm, tenant, KIND)

    async def alookup(self, prompt: str, llm_string: str) -> list[Any] | None:
        """See `lookup`."""
        return await in_thread(lambda: self.lookup(prompt, llm_string))

    async def aupdate(self, prompt: str, llm_string: str, return_val: Sequence[Any]) -> None:
        """See `update`."""
        await in_thread(lambda: self.update(prompt, llm_string, return_val))

    async def aclear(self, **kwargs: Any) -> None:
        """See `clear`."""
        await in_thread(lambda: self.clear(**kwargs))

    def _key(self, prompt: str, llm: str, *, counted: bool) -> Key | None:
        realm = self._realm
        try:
            reason = why_not(prompt, llm, **self._strict)
            tenant = None if reason else realm.tenant()
            if tenant is not None:
                scope = realm.cache.scopes.of(self._signature, tenant, realm.namespace)
                text = by_pixels(prompt, self._picture(scope.salt)) if self._pictures == "pixels" else prompt
                parts = (self._pictures, text, llm)
                asked = framed("llm", *(part.encode("utf-8", "surrogatepass") for part in parts))
                return Key(scope.digest, blake3(asked, key=scope.salt).digest(length=DIGEST_BYTES))
            reason = reason or "tenant"
        except (MMCacheError, ValueError, RecursionError) as error:
            realm.failed(f"not looked up: {type(error).__name__}")
            reason = "failed"
        if counted:
            with self._lock:
                self.bypassed[reason] += 1
        return None

    def _picture(self, salt: bytes) -> Any:
        def name(encoded: bytes) -> str:
            found = identify(encoded, "image", salt=salt, memo=self._realm.cache.memo)
            return f"picture {found.digest.hex()} {found.decoder}"

        return name
