"""`/metrics` for Prometheus, `/healthz` and `/readyz` for Kubernetes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mmcache.operator.handlers import Clusters
from mmcache.scale.status import Phase, Status

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


def exposition(clusters: Clusters) -> str:
    """In Prometheus' text format 0.0.4."""
    return "".join(f"{line}\n" for line in _lines(clusters))


def _lines(clusters: Clusters) -> Iterator[str]:
    known = [(f'namespace="{namespace}",name="{name}"', cluster.status)
             for namespace, name, cluster in sorted(clusters.known.values(), key=lambda one: one[:2])]  # fmt: skip
    for name, tells, of in _FIGURES:
        yield f"# HELP mmcache_cluster_{name} {tells}"
        yield f"# TYPE mmcache_cluster_{name} gauge"
        for labels, status in known:
            if status is not None and (figure := of(status)) is not None:
                yield f"mmcache_cluster_{name}{{{labels}}} {figure:g}"
    yield "# HELP mmcache_cluster_phase Which phase it is in: 1 for that one."
    yield "# TYPE mmcache_cluster_phase gauge"
    for labels, status in known:
        if status is not None:
            for phase in Phase:
                yield f'mmcache_cluster_phase{{{labels},phase="{phase}"}} {int(status.phase is phase)}'
    yield "# HELP mmcache_cluster_condition The conditions of the resource."
    yield "# TYPE mmcache_cluster_condition gauge"
    for labels, status in known:
        for one in status.conditions if status is not None else ():
            yield f'mmcache_cluster_condition{{{labels},type="{one.type}"}} {int(one.status)}'
    for name, tells, count in (("turns", "Turns made.", clusters.turns), ("failures", "Turns that the API server "
                               "ended.", clusters.failures)):  # fmt: skip
        yield f"# HELP mmcache_operator_{name}_total {tells}"
        yield f"# TYPE mmcache_operator_{name}_total counter"
        yield f"mmcache_operator_{name}_total {count}"
    yield "# HELP mmcache_operator_leading Whether this process holds the lease."
    yield "# TYPE mmcache_operator_leading gauge"
    yield f"mmcache_operator_leading {int(clusters.leading())}"


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
