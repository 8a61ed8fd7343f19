"""How the nodes of a cluster are talked to: who we are there, by which encryption, how long we wait."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mmcache.model.errors import ScaleError, TierError
from mmcache.scale.talk import Command, Wire, Word

_NODE_TIMEOUT_MS = 15_000
"""The default of the servers."""

MOST_BYTES = 64 << 20
"""Of the replies to one call: a node that sends more is not believed."""


@dataclass(frozen=True)
class Access:
    """Its repr shows no secret, and no error that comes from it does."""

    password: str | None = field(default=None, repr=False)
    user: str | None = None
    """None: the server's default user."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    timeout_seconds: float = 5.0
    """For one exchange of words with one node, from connecting to the last reply."""

    def to(self, host: str, port: int) -> Contact:
        """A connection to a node; use it in a `with`. Raises `ScaleError`."""
        return Contact(self, host, port)

    def ask(self, host: str, port: int, *words: Word) -> Any:
        """One command over a connection of its own. Raises `ScaleError`."""
        with self.to(host, port) as node:
            return node.ask(*words)

    def hiding(self, text: str) -> str:
        """What a node said, without the password: it may repeat what it was told."""
        return text.replace(self.password, "***") if self.password else text

    def migrating(self) -> tuple[Word, ...]:
        """The words by which MIGRATE tells the other node who we are."""
        if self.password is None:
            return ()
        return ("AUTH", self.password) if self.user is None else ("AUTH2", self.user, self.password)


class Contact:
    """A node that is talked to. Its errors say which node it is and which command failed."""

    def __init__(self, access: Access, host: str, port: int) -> None:
        """Connect. Raises `ScaleError`."""
        self._told: Sequence[Command] = ()
        self.place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self._wire = Wire(
                host, port, user=access.user, password=access.password, tls=access.tls,
                timeout_seconds=access.timeout_seconds, most_bytes=MOST_BYTES,
            )  # fmt: skip
        except ssl.SSLCertVerificationError as error:
            raise ScaleError(f"{self.place}: its certificate is not trusted: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise ScaleError(f"{self.place}: TLS failed: {error.reason}; does this port speak TLS?") from error
        except TimeoutError as error:
            raise ScaleError(f"{self.place} does not answer in time") from error
        except OSError as error:
            raise ScaleError(f"{self.place} cannot be reached: {error}") from error
        except TierError as error:
            raise ScaleError(f"{self.place} does not let us in: {error}") from error
        except UnicodeError as error:
            raise ScaleError(f"{self.place} is no name of a host") from error

    def tell(self, commands: Sequence[Command], seconds: float | None = None) -> list[Any]:
        """All at once; the replies in order, an error reply as a `TierError` in its place. Raises `ScaleError`."""
        self.begin(commands, seconds)
        return self.end()

    def begin(self, commands: Sequence[Command], seconds: float | None = None) -> None:
        """Tell them, to hear the replies at `end`. Raises `ScaleError`."""
        self._told = commands
        with self._failing():
            self._wire.send(commands, seconds)

    def end(self) -> list[Any]:
        """The replies to what was begun, as `tell` returns them. Raises `ScaleError`."""
        with self._failing():
            return self._wire.receive(len(self._told))

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """It is closed then: an answer that comes late would be taken for that to a later question."""
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise ScaleError(f"{self.place}: {_named(self._told[0])} is not answered in time") from error
        except OSError as error:
            self.close()
            raise ScaleError(f"{self.place}: {_named(self._told[0])}: {error}") from error

    def ask(self, *words: Word, seconds: float | None = None) -> Any:
        """One command. Raises `ScaleError`, also for an error reply."""
        return self.insist([words], seconds)[0]

    def insist(self, commands: Sequence[Command], seconds: float | None = None) -> list[Any]:
        """All at once. Raises `ScaleError` for the first error reply."""
        replies = self.tell(commands, seconds)
        for words, reply in zip(commands, replies, strict=True):
            self.check(words, reply)
        return replies

    def check(self, words: Command, reply: Any) -> None:
        """Raises `ScaleError` when this command's reply is an error."""
        if isinstance(reply, TierError):
            raise ScaleError(f"{self.place}: {_named(words)}: {reply}") from reply

    def node_timeout_ms(self) -> int:
        """After which silent nodes are called dead; the servers' default where it does not say. Raises `ScaleError`."""
        (reply,) = self.tell([("CONFIG", "GET", "cluster-node-timeout")])
        told = reply[1] if isinstance(reply, list) and len(reply) == 2 else None
        return int(told) if isinstance(told, bytes) and told.isdigit() and len(told) < 10 else _NODE_TIMEOUT_MS

    def close(self) -> None:
        """End it."""
        self._wire.close()

    def __enter__(self) -> Contact:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _named(words: Command) -> str:
    """The command without what it is told: that may be a secret, or a user's key."""
    return " ".join(str(word) for word in words[: 2 if words[0] in ("CLUSTER", "CONFIG", "CLIENT") else 1])
