"""One server, asked in single round trips; what goes wrong with it is a `TierError`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mmcache.model.errors import SettingsError, TierError

REST_SECONDS = 1.0
"""A server that failed is left alone for so long: a dead one must not cost every call its timeout."""

_CODES = {"OutOfMemoryError": "OOM ", "ReadOnlyError": "READONLY ", "NoPermissionError": "NOPERM "}

_NONSENSE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError, MemoryError)
"""What the client trips over where the other side does not speak the protocol."""

_REPLIES: dict[str | bytes | int, type | tuple[type, ...]] = {
    "GETRANGE": bytes, "STRLEN": int, "UNLINK": int, "SCAN": (list, tuple), "TIME": (list, tuple),
}  # fmt: skip
"""Of what kind a server's replies are."""

Command = tuple[str | bytes | int, ...]


class Connection:
    """A bounded pool of connections. Threads may share it; a forked child opens its own."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        username: str | None,
        password: str | None,
        database: int,
        timeout_seconds: float,
        connections: int,
        monotonic: Callable[[], float],
    ) -> None:
        """Opens nothing yet. Raises `SettingsError` without the client library."""
        redis, retry = _library()
        self._errors: Any = redis.exceptions
        self._where = f"{host}:{port}"
        self._monotonic = monotonic
        self._rest_until = float("-inf")
        pool = redis.BlockingConnectionPool(
            host=host, port=port, username=username, password=password, db=database,
            max_connections=connections, timeout=timeout_seconds,
            socket_timeout=timeout_seconds, socket_connect_timeout=timeout_seconds, socket_keepalive=True,
            # once more, for a connection that the server closed while it lay idle; every command may be repeated
            retry=retry.Retry(redis.backoff.NoBackoff(), 1, supported_errors=(redis.exceptions.ConnectionError,)),
        )  # fmt: skip
        self._client = redis.Redis(connection_pool=pool)
        self._pool = pool

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """The replies, in order; one that the server refused is a `Refusal`. Raises `TierError`."""
        if self._monotonic() < self._rest_until:
            raise TierError(f"the server at {self._where} failed a moment ago and is asked again soon")
        try:
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            replies = pipeline.execute(raise_on_error=False)
        except (self._errors.RedisError, OSError, *_NONSENSE) as error:
            if isinstance(error, _NONSENSE):
                self._pool.disconnect()  # what is left unread on it would answer the next question
            if isinstance(error, self._errors.ConnectionError | self._errors.TimeoutError | OSError):
                self._rest_until = self._monotonic() + REST_SECONDS
            raise TierError(f"the server at {self._where} does not serve: {error}; see that it runs") from error
        return [self._checked(command[0], reply) for command, reply in zip(commands, replies, strict=True)]

    def _checked(self, command: str | bytes | int, reply: Any) -> Any:
        if isinstance(reply, Exception):
            return Refusal.of(reply)
        if not isinstance(reply, _REPLIES.get(command, object)):
            raise TierError(
                f"the server at {self._where} answers {command!s} with {reply!r:.40}; is it Valkey or Redis?"
            )
        return reply

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
        self._pool.disconnect()


class Refusal(str):
    """What the server said instead of a reply to one command; begins with its code."""

    __slots__ = ()

    @staticmethod
    def of(error: Exception) -> Refusal:
        """The client has cut off the codes that it knows."""
        return Refusal(f"{_CODES.get(type(error).__name__, '')}{error}")


def _library() -> tuple[Any, Any]:
    try:
        import redis
        import redis.backoff
        import redis.retry
    except ImportError as error:
        raise SettingsError("a Valkey tier needs the redis client: pip install 'mmcache[valkey]'") from error
    return redis, redis.retry
