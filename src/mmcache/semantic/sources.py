"""`Sources`: what answers rest on. Once it has changed, they are dropped, and out of reach for good."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mmcache.keys.content import identify
from mmcache.model.errors import InvalidInputError
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.semantic.alias import Alias
from mmcache.semantic.learning import Learning
from mmcache.semantic.ledger import Ledger
from mmcache.semantic.options import SourceKind
from mmcache.semantic.planning import Planner
from mmcache.semantic.prompt import Identified, Identifier, source_id

if TYPE_CHECKING:
    from mmcache.cache import Cache


class Sources:
    """Of one cache."""

    def __init__(
        self, cache: Cache, ledger: Ledger, identifier: Identifier, planner: Planner | None, learning: Learning
    ) -> None:
        self._cache, self._ledger, self._identifier = cache, ledger, identifier
        self._planner, self._learning = planner, learning

    def changed(self, kind: SourceKind, name: Any, tenant: str, namespace: str) -> int:
        """A new edition, first of all; then what is linked to the old one goes. How many blocks. Raises `TierError`."""
        cache = self._cache
        salt = cache.scopes.require(self._learning.source_key(bytes(16), tenant, namespace)).salt
        if kind in ("image", "audio"):
            content = identify(name, kind, salt=salt, memo=cache.memo, options=self._identifier.options)
            name = content.digest.hex()
        if not isinstance(name, str) or not name:
            raise InvalidInputError(f"a {kind} that changed has a name that is not empty, not {name!r}")
        source = source_id(salt, kind, name)
        self._identifier.editions[source] = self._ledger.changed(source)
        cache.below.tell_sources([source])
        about: list[Key] = []
        if kind in ("image", "audio") and self._planner is not None:
            with self._planner.lock:
                about = self._planner.questions.about(bytes.fromhex(name))
                self._planner.questions.forget_here(about)
            self._planner.questions.forget_at_rest(about)
        return cache.invalidate([self._learning.source_key(source, tenant, namespace), *about])

    def heard(self, sources: Collection[bytes] | None) -> None:
        """Another host says so; None = anything may have changed. Raises `TierError`."""
        if sources is None:
            self._ledger.renew()
            return
        for source in sources:
            self._identifier.editions[source] = self._ledger.changed(source)

    def moved(self, alias: Alias, found: Identified, value: Any) -> bool:
        """Whether the answer came from another model than the alias's answers before; then those are dropped."""
        scope = found.scope
        try:
            known = scope.signature
            current = alias.signature(self._cache.clock.monotonic())
            if replace(current, modality=known.modality, decoder=known.decoder, storage=known.storage) != known:
                return True
            if alias.fingerprint is None:
                return False
            label = f"fingerprint:{source_id(scope.salt, 'model', alias.name).hex()}"
            now, before = str(alias.fingerprint(value)), self._ledger.recall(label)
            if before not in (None, now):
                self._cache.events.emit(
                    Failed("semantic", f"{alias.name} moved from {before} to {now}: its answers go")
                )
                self.changed("model", alias.name, scope.tenant, scope.namespace)
            if now != before:
                self._ledger.remember(label, now)
            return before not in (None, now)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything; then nobody knows: drop
            self._cache.events.emit(Failed("semantic", f"cannot say which model answered: {error!r}", found.key))
            return True
