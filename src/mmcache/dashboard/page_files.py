"""The page's files, from the package: nothing else of the disk, and nothing from outside."""

from __future__ import annotations

import gzip
from functools import cache
from hashlib import blake2b
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from mmcache.model.errors import DashboardError

ROOT = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml", ".png": "image/png", ".woff2": "font/woff2", ".json": "application/json",
}  # fmt: skip


@cache
def _names() -> dict[str, Path]:
    return {path.relative_to(ROOT).as_posix(): path for path in ROOT.rglob("*") if path.suffix in TYPES}


@cache
def _small(body: bytes) -> bytes:
    return gzip.compress(body, 6, mtime=0)


async def page(request: Request) -> Response:
    """`GET /`."""
    return _file(request, "index.html")


async def static(request: Request) -> Response:
    """`GET /static/{path}`."""
    return _file(request, request.path_params["path"])


def _file(request: Request, name: str) -> Response:
    path = _names().get(name)
    if path is None:
        raise DashboardError("there is nothing here", status=404, code="unknown")
    body = path.read_bytes()
    squeezed = "gzip" in request.headers.get("accept-encoding", "") and path.suffix not in (".png", ".woff2")
    tag = f'"{blake2b(body, digest_size=16).hexdigest()}{"-gzip" * squeezed}"'
    headers = {"cache-control": "no-cache", "etag": tag, "vary": "accept-encoding"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if squeezed:
        body, headers["content-encoding"] = _small(body), "gzip"
    return Response(body, headers=headers, media_type=TYPES[path.suffix])
