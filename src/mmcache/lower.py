"""`Lower`: the tiers below memory, opened as a cache's arguments say: its folder, the shared tier, the caller's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mmcache.keys.memo import LocalMemo
from mmcache.keys.region import Region
from mmcache.model.clock import Clock
from mmcache.model.errors import SettingsError, TierError
from mmcache.model.event import Event, MissReason
from mmcache.model.key import WHOLE, Key
from mmcache.model.memo import Memo
from mmcache.model.void import VoidKey
from mmcache.rows import Row
from mmcache.scopes import Scope
from mmcache.seen import SignatureIndex
from mmcache.settings import DiskSettings, SharedSettings, Tenant, parse_bytes
from mmcache.tiers.base import Claims, Tier
from mmcache.tiers.broadcast import Broadcast

if TYPE_CHECKING:
    from mmcache.shared import Shared


class Upstairs(Protocol):
    """What the tiers tell the cache that they are opened for."""

    def emit(self, event: Event) -> None: ...
    def catch_up(self) -> int: ...
    def hear(self, keys: Sequence[Key] | None) -> None: ...


@dataclass
class Lower:
    """Opened, nearest first."""

    tiers: list[Tier]
    memo: Memo = field(default_factory=LocalMemo)
    claims: Claims | None = None
    signatures: SignatureIndex | None = None
    broadcast: Broadcast | None = None
    shared: Shared | None = None
    closers: list[Callable[[], None]] = field(default_factory=list)
    """What else the cache closes, first of all."""
    early: list[Event] | None = field(default_factory=list)
    """What happened before there was anybody to tell; None = there is."""
    tell: Callable[[Event], None] = lambda event: None

    @classmethod
    def open(
        cls,
        root: Path | None,
        disk: int | str | None,
        shared: str | SharedSettings | None,
        own: Sequence[Tier],
        *,
        limits: DiskSettings,
        secret: bytes,
        clock: Clock,
        tenants: Mapping[str, Tenant],
        upstairs: Callable[[], Upstairs],
        heard: Callable[[Collection[bytes] | None], None],
    ) -> Lower:
        """`upstairs()` is asked for later, when there is something to tell. `heard(sources)`: other hosts say that what
        answers rest on has changed, None = anything may have. Raises `SettingsError`, `TierError`."""
        lower = cls([])
        wanted = SharedSettings(shared) if isinstance(shared, str) else shared

        def emit(event: Event) -> None:
            if lower.early is None:
                upstairs().emit(event)
            else:
                lower.early.append(event)

        lower.tell = emit

        def catch_up() -> int:
            """With what others say, and they with this process: who writes behind calls it around each batch."""
            if lower.shared is not None:
                lower.shared.tell_the_replaced()
            return upstairs().catch_up()

        if root is not None and disk is not None and parse_bytes(disk):
            from mmcache.folder import Folder  # lmdb only where there is a disk tier

            limits = replace(limits, limit_bytes=parse_bytes(disk))
            folder = Folder(root, limits, clock=clock, tenants=tenants, emit=emit, catch_up=catch_up)
            lower.tiers.append(folder.behind)
            lower.memo, lower.claims, lower.signatures = folder.disk.memo, folder.disk.claims, folder.disk.signatures
            lower.broadcast = folder.broadcast
        if wanted is not None:
            from mmcache.shared import Shared
            from mmcache.tiers.both_claims import BothClaims

            broadcast = lower.broadcast
            try:
                lower.shared = Shared(
                    wanted, secret, folder=None if broadcast is None else root, clock=clock, emit=emit,
                    catch_up=catch_up, memory=None if root is None else root / "news",
                    hear=lambda keys: upstairs().hear(keys), heard=heard,
                    sequence=(lambda: 0) if broadcast is None else (lambda: broadcast.sequence[0]),
                )  # fmt: skip
            except SettingsError:
                for tier in lower.tiers:
                    tier.close()
                raise
            lower.tiers.append(lower.shared.tier)
            here = lower.claims
            lower.claims = lower.shared.claims if here is None else BothClaims(here, lower.shared.claims)
        lower.tiers.extend(own)
        return lower

    def key(self, scope: Scope, digest: bytes, region: Region | None = None, rows: Row | Sequence[Row] = ()) -> Key:
        """The key of identified content that also rests on `rows`; a `VoidKey` while nobody can say what state they are
        in. Raises `SettingsError` for rows without a shared tier."""
        if rows:
            mixed = self.mix(digest, scope.salt, [rows] if isinstance(rows, Row) else rows)
            if isinstance(mixed, MissReason):
                return VoidKey.of(scope.digest, mixed)
            digest = mixed
        return Key(scope.digest, digest, region.digest(scope.salt) if region else WHOLE)

    def mix(self, digest: bytes, salt: bytes, rows: Sequence[Row]) -> bytes | MissReason:
        """See `Shared.mix`. Raises `SettingsError` without a shared tier."""
        if self.shared is None:
            raise SettingsError("what changes in a database is heard through the shared tier: Cache(shared=…)")
        return self.shared.mix(digest, salt, rows)

    def check_heard(self) -> None:
        """Raises `TierError` while it is not written down what other hosts say has changed."""
        if self.shared is not None and not self.shared.all_heard:
            raise TierError("what other hosts say cannot be written down")

    def tell_sources(self, sources: Sequence[bytes]) -> None:
        """Make other hosts forget answers that rest on `sources`. Raises `TierError`: tell it again."""
        if self.shared is not None:
            self.shared.tell_sources(sources)

    def start(self) -> None:
        """The cache is whole: say what happened before, and begin to hear other hosts."""
        early, self.early = self.early, None
        for event in early or ():
            self.tell(event)
        if self.shared is not None:
            self.shared.news.start()

    def quiet(self) -> None:
        """Before the tiers: hear them no more, and close what is built on the cache."""
        for close in self.closers:
            close()
        if self.shared is not None:
            self.shared.news.close()

    def close(self) -> None:
        """After the tiers."""
        if self.shared is not None:
            self.shared.close()
