"""`GET /metrics`: what the cache and the proxy have counted, for Prometheus and whoever reads its format."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from mmcache import attribution
from mmcache.server.accounts import BOUNDS, Accounts
from mmcache.server.exchange import Answered, Verdict
from mmcache.telemetry.counts import counts_of
from mmcache.telemetry.exposition import OPENMETRICS, PLAIN, render, wanted

if TYPE_CHECKING:
    from mmcache.cache import Cache
    from mmcache.tiers.hit_index import Sampled

ONE_IN = 100
"""Hits of memory that are asked by which route, and from where, they come."""

_END = b"# EOF\n"
_PASSED_ON = frozenset({b"forwarded", b"via", b"x-real-ip", b"true-client-ip", b"x-client-ip", b"x-cluster-client-ip"})
_PASSED_ON_BEGIN = (b"x-forwarded", b"x-envoy-", b"cf-")


def share_out(cache: Cache, one_in: int = ONE_IN) -> None:
    """Let memory's hits, which it counts without a look at who asks, be shared out among routes and regions as a sample
    of them is. For a cache that nobody traces: who does draws such a sample himself."""
    counts = counts_of(cache)

    def met(sampled: Sampled) -> None:
        key, _, context = sampled
        counts.met(key, context.run(attribution.current), float(one_in))

    cache.answers.sample_hits(one_in, met)


UnderWay = dict[bool, "asyncio.Future[bytes]"]
"""What is being written, by its kind."""


async def answer(cache: Cache, accounts: Accounts, scope: MutableMapping[str, Any], under_way: UnderWay) -> Answered:
    """All of it, as text of the kind that is asked for. Who asks while it is written is given the same, so that however
    many ask, lookups find a free thread."""
    accept = b",".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1")
    openmetrics = wanted(accept)
    work = under_way.get(openmetrics)
    if work is None:
        work = under_way[openmetrics] = asyncio.ensure_future(asyncio.to_thread(render, cache, openmetrics))
        work.add_done_callback(lambda _: under_way.pop(openmetrics, None))
    found = await asyncio.shield(work)
    own = "\n".join(_durations(accounts, openmetrics)).encode() + b"\n"
    body = found.removesuffix(_END) + own + (_END if openmetrics else b"")
    kind = (OPENMETRICS if openmetrics else PLAIN).encode()
    headers = [(b"content-type", kind), (b"cache-control", b"no-store"), (b"vary", b"accept")]
    return Answered(200, headers, body, Verdict("pass", "own"))


def _durations(accounts: Accounts, openmetrics: bool) -> Iterator[str]:
    """Routes are templates and outcomes are five, so that nothing in here needs an escape."""
    name = "mmcache_proxy_duration_seconds"
    yield f"# HELP {name} From the head of a request to the end of its answer."
    yield f"# TYPE {name} histogram"
    if openmetrics:
        yield f"# UNIT {name} seconds"
    for (route, outcome), took in sorted(accounts.took.items()):
        labels, total = f'route="{route}",outcome="{outcome}"', 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), took[:-1], strict=True):
            total += int(count)
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {took[-1]!r}"
        yield f"{name}_count{{{labels}}} {total}"


def local(scope: MutableMapping[str, Any]) -> bool:
    """Whether a program of this machine asks, for itself: not a page that had its own name point here (`Host` is this
    machine's), and not a front proxy for somebody else, as far as that shows. nginx shows nothing by itself but
    HTTP/1.0, which it speaks unless it is told otherwise; one that only moves bytes shows nothing at all."""
    names = [name for name, _ in scope["headers"]]
    if scope.get("http_version") == "1.0" or any(
        name in _PASSED_ON or name.startswith(_PASSED_ON_BEGIN) for name in names
    ):
        return False
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    client = scope.get("client")
    return client is not None and _loopback(client[0]) and len(hosts) < 2 and all(map(_plain, hosts))


def _loopback(host: str, unspecified: bool = False) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or (unspecified and address.is_unspecified)


def _plain(host: bytes) -> bool:
    name = host.decode("latin-1").lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return name == "localhost" or _loopback(name, unspecified=True)
