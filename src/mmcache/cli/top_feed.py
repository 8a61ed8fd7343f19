"""What `mmcache top` reads from a dashboard, over HTTP, and checks before it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, build_opener

import msgspec

from mmcache.dashboard.telling import named
from mmcache.model.errors import DashboardError, SettingsError

TIMEOUT_SECONDS = 10.0
MOST_BYTES = 16 << 20
POINTS = 120
"""Of a curve; a terminal has no more columns to spare."""
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}

T = TypeVar("T")


class Line(msgspec.Struct):
    """One line of the hit ratio."""

    name: str
    hits: list[float]
    misses: list[float]
    ratio: list[float | None]


class Ratio(msgspec.Struct):
    """Hit ratio over time."""

    step: float
    t: list[float]
    series: list[Line]


class Reasons(msgspec.Struct):
    """Misses over time by reason."""

    t: list[float]
    reasons: dict[str, list[float]]


class Saved(msgspec.Struct):
    """What hits saved."""

    total_seconds: float = 0.0
    total_bytes: float = 0.0
    cost_avoided: float | None = None
    currency: str | None = None


class Tier(msgspec.Struct):
    """How full one tier of one process is."""

    instance: str
    tier: str
    used: list[float | None]
    limit: float | None = None
    evictions: list[float | None] = []
    service: str = ""


class Tiers(msgspec.Struct):
    """All tiers."""

    tiers: list[Tier]


class HotKey(msgspec.Struct):
    """One key that is asked for often."""

    key: str
    modality: str = ""
    tenant: str = ""
    hits: float = 0.0
    misses: float = 0.0


class Keys(msgspec.Struct):
    """The hottest."""

    keys: list[HotKey]


class Cause(msgspec.Struct):
    """One reason for a fall of the hit ratio."""

    cause: str
    text: str
    share: float
    misses: float = 0.0
    since: float | None = None


class Causes(msgspec.Struct):
    """Of a fall; none where nothing fell."""

    causes: list[Cause]


@dataclass(frozen=True)
class Snapshot:
    """All that is shown at once. A part that the dashboard could not give is None."""

    until: float
    """Unix seconds."""
    minutes: float
    by: str
    whole: Ratio
    apart: Ratio | None = None
    reasons: Reasons | None = None
    saved: Saved | None = None
    tiers: Tiers | None = None
    keys: Keys | None = None
    causes: Causes | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        parts = {
            name: getattr(self, name) for name in ("whole", "apart", "reasons", "saved", "tiers", "keys", "causes")
        }
        head = {"until": self.until, "minutes": self.minutes, "by": self.by}
        return head | {name: msgspec.to_builtins(part) for name, part in parts.items()}


class _Straight(HTTPRedirectHandler):
    def redirect_request(self, *args: object, **more: object) -> None:
        return


class Feed:
    """A dashboard's API. Raises `DashboardError` where it does not answer as one.

    address: `http://host:port`, also https.
    """

    def __init__(self, address: str) -> None:
        try:
            parts = urlsplit(address)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
            parts.port  # noqa: B018 - raises where it is no number
        except ValueError:
            usable = False
        if not usable or parts.query or parts.fragment:
            raise SettingsError(f"a dashboard's address is http://HOST:PORT, not {address!r}")
        self.address = address.rstrip("/")
        straight = [ProxyHandler({})] if parts.hostname in _LOOPBACK else []
        self._opener: OpenerDirector = build_opener(_Straight, *straight)

    def read(self, by: str, until: float, minutes: float) -> Snapshot:
        """All of it, of the `minutes` before `until`, by one axis."""
        window = {"from": f"{until - 60 * minutes:.3f}", "to": f"{until:.3f}"}
        return Snapshot(
            until, minutes, by,
            whole=self._get(Ratio, "ratio", {**window, "points": POINTS}),
            apart=self._maybe(Ratio, "ratio", {**window, "points": POINTS, "by": by}),
            reasons=self._maybe(Reasons, "reasons", {**window, "points": POINTS}),
            saved=self._maybe(Saved, "saved", {**window, "points": 2}),
            tiers=self._maybe(Tiers, "tiers", {**window, "points": 30}),
            keys=self._maybe(Keys, "keys", {**window, "top": 20, "points": 2}),
            causes=self._maybe(Causes, "causes", window),
        )  # fmt: skip

    def _maybe(self, kind: type[T], name: str, query: dict[str, Any]) -> T | None:
        try:
            return self._get(kind, name, query)
        except _RefusedError:
            return None

    def _get(self, kind: type[T], name: str, query: dict[str, Any]) -> T:
        url = f"{self.address}/api/v1/{name}?{urlencode(query)}"
        try:
            with self._opener.open(url, timeout=TIMEOUT_SECONDS) as answer:
                data = answer.read(MOST_BYTES + 1)
        except HTTPError as error:
            with error:
                raise _RefusedError(f"{self.address} answered {name} with {error.code}; is it a dashboard?") from error
        except (OSError, ValueError, HTTPException) as error:
            reason = named(str(getattr(error, "reason", error)), 200)  # may be words of who answers
            raise DashboardError(
                f"no dashboard answers at {self.address} ({reason}); start `mmcache dashboard`, or say --from ADDRESS"
            ) from error
        if len(data) > MOST_BYTES:
            raise DashboardError(f"{self.address} answered {name} with more than {MOST_BYTES} bytes")
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise DashboardError(f"{self.address} is no dashboard, or a newer one: {name}: {error}") from error


class _RefusedError(DashboardError):
    """It answered, with an error."""
