"""`/metrics` for Prometheus, `/healthz` and `/readyz` for Kubernetes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from mmcache.scale.status import Phase, Status

if TYPE_CHECKING:
    from mmcache.operator.cluster import Cluster
    from mmcache.operator.handlers import Clusters

_STALE_SECONDS = 60.0
_WAIT_SECONDS = 10.0
"""Who connects and asks nothing is let go, with his thread."""
_Figure = Callable[[Status], float | None]
_FIGURES: tuple[tuple[str, str, _Figure], ...] = (
    ("shards", "Primaries that serve slots.", lambda one: one.shards),
    ("wanted_shards", "Shards that the load asks for.", lambda one: one.wanted),
    ("nodes", "Members that exist.", lambda one: one.nodes),
    ("ready_nodes", "Members that answer.", lambda one: one.ready_nodes),
    ("requests_per_second", "Over the burst's window.", lambda one: one.qps),
    ("baseline_requests_per_second", "What is usual now.", lambda one: one.baseline_qps),
    ("hit_ratio", "Of lookups at the nodes, those of puts too.", lambda one: one.hit_ratio),
    ("keys", "Of all primaries.", lambda one: one.keys),
    ("used_bytes", "Of all primaries.", lambda one: one.used_bytes),
    ("max_bytes", "Of all primaries.", lambda one: one.max_bytes),
    (
        "slots_moved",
        "Of the resharding that is under way.",
        lambda one: one.progress.moved if one.progress else None,
    ),
    (
        "slots_to_move",
        "Of the resharding that is under way.",
        lambda one: one.progress.total if one.progress else None,
    ),
)


OF_CLUSTERS = (*(name for name, _, _ in _FIGURES), "turn_timestamp_seconds", "phase", "condition")
"""`mmcache_cluster_…`: gauges by `namespace` and `name`, of the resource."""
_OF_OPERATOR: tuple[tuple[str, str, Callable[[Clusters], int]], ...] = (
    ("turns_total", "Turns made.", lambda all_of: all_of.turns),
    ("failures_total", "Turns that the API server ended.", lambda all_of: all_of.failures),
    ("leading", "Whether this process holds the lease.", lambda all_of: int(all_of.leading())),
    ("clusters", "Resources that it serves.", lambda all_of: len(_served(all_of))),
)
OF_OPERATOR = tuple(name for name, _, _ in _OF_OPERATOR)
"""`mmcache_operator_…`, without labels: counters where they end with `_total`."""


def exposition(clusters: Clusters) -> str:
    """In Prometheus' text format 0.0.4."""
    return "".join(f"{line}\n" for line in _lines(clusters))


def _served(clusters: Clusters) -> list[tuple[str, str, str, Cluster]]:
    """Uid, namespace, name, cluster. None without the lease: then it is another operator's to tell. Where one was
    deleted and made anew, and nobody told us, the new one: no series may be there twice."""
    found = list(clusters.known.items()) if clusters.leading() else []
    by_name = {(namespace, name): (uid, namespace, name, cluster) for uid, (namespace, name, cluster) in found}
    return [one for _, one in sorted(by_name.items(), key=lambda item: item[0])]


def _lines(clusters: Clusters) -> Iterator[str]:
    served = _served(clusters)
    known = [(f'namespace="{_quoted(namespace)}",name="{_quoted(name)}"', cluster.status, clusters.turned.get(uid))
             for uid, namespace, name, cluster in served]  # fmt: skip
    for name, tells, of in _FIGURES:
        yield from _head(f"mmcache_cluster_{name}", tells)
        for labels, status, _ in known:
            if status is not None and (figure := of(status)) is not None:
                yield f"mmcache_cluster_{name}{{{labels}}} {figure}"
    yield from _head("mmcache_cluster_turn_timestamp_seconds", "When its last turn ended that did not fail.")
    for labels, _, turned in known:
        if turned is not None:
            yield f"mmcache_cluster_turn_timestamp_seconds{{{labels}}} {turned:.3f}"
    yield from _head("mmcache_cluster_phase", "Which phase it is in: 1 for that one.")
    for (labels, status, _), (*_, cluster) in zip(known, served, strict=True):
        now = Phase.BLOCKED if cluster.refused else status and status.phase
        for phase in Phase if now is not None else ():
            yield f'mmcache_cluster_phase{{{labels},phase="{phase}"}} {int(now is phase)}'
    yield from _head("mmcache_cluster_condition", "The conditions of the resource.")
    for labels, status, _ in known:
        for one in status.conditions if status is not None else ():
            yield f'mmcache_cluster_condition{{{labels},type="{_quoted(one.type)}"}} {int(one.status)}'
    for name, tells, figure_of in _OF_OPERATOR:
        yield from _head(f"mmcache_operator_{name}", tells)
        yield f"mmcache_operator_{name} {figure_of(clusters)}"


def _head(name: str, tells: str) -> Iterator[str]:
    yield f"# HELP {name} {tells}"
    yield f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}"


def _quoted(value: str) -> str:
    """A label's value. Kubernetes lets none of these pass as a name; this does not rest on it."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class Watch:
    """The HTTP server. `beat` is called by the operator's loop: where it hangs, `/healthz` says 503."""

    def __init__(self, address: tuple[str, int], clusters: Clusters) -> None:
        watch = self
        self._beat = time.monotonic()
        self.ready = False

        class Answer(BaseHTTPRequestHandler):
            timeout = _WAIT_SECONDS

            def do_GET(self) -> None:
                code, text = watch.answer(self.path.partition("?")[0], clusters)
                body = text.encode()
                self.send_response(code)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(address, Answer)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="mmcache-watch", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """The loop goes round."""
        self._beat = time.monotonic()

    def answer(self, path: str, clusters: Clusters) -> tuple[int, str]:
        """Code and text."""
        if path == "/metrics":
            return 200, exposition(clusters)
        if path == "/healthz":
            late = time.monotonic() - self._beat
            return (200, "ok\n") if late < _STALE_SECONDS else (503, f"the loop stands since {late:.0f} s\n")
        if path == "/readyz":
            return (200, "ok\n") if self.ready else (503, "starting\n")
        return 404, "/metrics, /healthz, /readyz\n"

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
