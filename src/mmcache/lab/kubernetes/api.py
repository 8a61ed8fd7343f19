"""Plain words to a Kubernetes API server: JSON over HTTPS, as somebody's token allows."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from mmcache.model.errors import MMCacheError

Json = dict[str, Any]
_PATIENCE_SECONDS = 30.0
MERGE, STRATEGIC, JSON_PATCH, APPLY = (
    f"application/{kind}" for kind in
    ("merge-patch+json", "strategic-merge-patch+json", "json-patch+json", "apply-patch+yaml")
)  # fmt: skip


class ApiError(MMCacheError):
    """The server refuses: `code` is HTTP's, `reason` Kubernetes' word, the text its message."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class Api:
    """One server, one identity. May be used by threads: each has its own connection."""

    def __init__(self, port: int, token: str, authority: Path) -> None:
        self.port, self.token, self.authority = port, token, authority
        self._context = ssl.create_default_context(cafile=str(authority))
        self._own = threading.local()
        self._all: list[http.client.HTTPSConnection] = []

    def get(self, path: str, **query: str) -> Json:
        """An object or a list. Raises `ApiError`, `OSError`."""
        return self._ask("GET", path + _query(query))

    def ready(self) -> bool:
        """Whether the server says that it is, its own roles and namespaces included."""
        try:
            self._ask("GET", "/readyz", parsed=False)
        except (OSError, ApiError):
            return False
        return True

    def items(self, path: str, **query: str) -> list[Json]:
        """The items of a list."""
        found: list[Json] = self.get(path, **query)["items"]
        return found

    def create(self, path: str, what: Mapping[str, Any], **query: str) -> Json:
        """POST, to the path of the collection."""
        return self._ask("POST", path + _query(query), what)

    def replace(self, path: str, what: Mapping[str, Any], **query: str) -> Json:
        """PUT."""
        return self._ask("PUT", path + _query(query), what)

    def patch(self, path: str, what: Any, kind: str = MERGE, **query: str) -> Json:
        """PATCH; see `MERGE` and its neighbours for the kinds."""
        return self._ask("PATCH", path + _query(query), what, kind)

    def delete(self, path: str, options: Mapping[str, Any] | None = None) -> Json | None:
        """DELETE; None where there was nothing."""
        try:
            return self._ask("DELETE", path, options)
        except ApiError as error:
            if error.code in (404, 409):  # gone, or another one of the same name
                return None
            raise

    def watch(self, path: str, since: str = "") -> Watch:
        """What happens to a collection: since a list's `resourceVersion`, or first ADDED for all that there is."""
        query = {"watch": "true"} | ({"resourceVersion": since} if since else {})
        return Watch(self._connection(), path + _query(query), self._headers())

    def _ask(
        self, method: str, path: str, what: Any = None, kind: str = "application/json", parsed: bool = True
    ) -> Json:
        body = None if what is None else json.dumps(what).encode()
        kept: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        for connection in [kept, None] if kept is not None else [None]:
            use = connection or self._connection()
            if connection is None:
                self._own.connection = use
                self._all.append(use)
            try:
                use.request(method, path, body, self._headers() | ({"Content-Type": kind} if body else {}))
                reply = use.getresponse()
                said = reply.read()
                break
            except (OSError, http.client.HTTPException) as error:
                use.close()
                self._own.connection = None
                if connection is None:  # a kept one may have been closed while it was idle
                    raise OSError(f"the API server does not answer: {error}") from error
        if reply.status >= 400:
            raise _error(reply.status, said)
        found: Json = json.loads(said) if parsed else {}
        return found

    def close(self) -> None:
        """The connections of all threads."""
        while self._all:
            self._all.pop().close()

    def _connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=_PATIENCE_SECONDS, context=self._context)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}


class Watch:
    """Iterate over it for ("ADDED" | "MODIFIED" | "DELETED", object). Ends with the server, or when it is closed."""

    def __init__(self, connection: http.client.HTTPSConnection, path: str, headers: Mapping[str, str]) -> None:
        self._connection = connection
        try:
            connection.request("GET", path, headers=headers)
            self._reply = connection.getresponse()
            if self._reply.status != 200:
                raise _error(self._reply.status, self._reply.read())
        except BaseException:
            connection.close()
            raise
        self._socket = connection.sock
        if self._socket is not None:
            self._socket.settimeout(None)

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        try:
            yield from self._events()
        finally:
            self._connection.close()

    def _events(self) -> Iterator[tuple[str, Json]]:
        rest = b""
        while True:
            try:
                chunk = self._reply.read1(1 << 20)
            except (OSError, ValueError, http.client.HTTPException):  # the server died, or we were closed
                return
            if not chunk:
                return
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["type"], event["object"]

    def close(self) -> None:
        """By any thread: who iterates is done at once."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _error(code: int, said: bytes) -> ApiError:
    try:
        told = json.loads(said)
    except ValueError:
        return ApiError(code, "", said.decode(errors="replace").strip()[:500])
    return ApiError(code, told.get("reason", ""), told.get("message", ""))


def _query(query: Mapping[str, str]) -> str:
    return f"?{urlencode(query)}" if query else ""


def path_of(thing: Mapping[str, Any], plural: str) -> str:
    """The path of the collection that an object goes into; `plural` is its resource's name in the API."""
    version, namespace = thing["apiVersion"], thing["metadata"].get("namespace")
    top = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{top}/namespaces/{quote(namespace)}/{plural}" if namespace else f"{top}/{plural}"
