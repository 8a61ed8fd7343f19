"""`Alias`: a model's name that may move to another model, as a server's "latest" does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmcache.forks import Lock
from mmcache.model.errors import SettingsError
from mmcache.model.signature import Signature


class Alias:
    """A name, and how to see which model it stands for now.

    >>> Alias("chat-latest", resolve=lambda: client.models.retrieve("chat-latest").id, every=60)
    >>> Alias("chat-latest", fingerprint=lambda answer: answer["system_fingerprint"])

    resolve: names the model (a version string or `Signature`); asked again after `every` seconds. Answers are found
    only under the model that gave them, so a move makes older ones unreachable at once. Where it raises, the cache
    steps aside.
    fingerprint: names the model that gave an answer, from the answer. A move is noticed at the next computed answer;
    then all of the alias's answers are dropped.
    """

    def __init__(
        self,
        name: str,
        *,
        resolve: Callable[[], Signature | str] | None = None,
        fingerprint: Callable[[Any], str] | None = None,
        every: float = 60.0,
    ) -> None:
        if resolve is None and fingerprint is None:
            raise SettingsError("an Alias needs resolve= or fingerprint=, or nobody would notice when it moves")
        if not every >= 0:
            raise SettingsError(f"Alias(every=…) is a number of seconds, 0 or more, not {every!r}")
        self.name, self._resolve, self.fingerprint, self._every = name, resolve, fingerprint, every
        self._lock = Lock()
        self._known: tuple[float, Signature] | None = None

    def signature(self, now: float) -> Signature:
        """Of the model it stands for now; `now` in monotonic seconds. Raises what `resolve` raises."""
        if self._resolve is None:
            return Signature(model_version=f"alias:{self.name}")
        with self._lock:
            known = self._known
        if known is None or not 0 <= now - known[0] < self._every:
            known = (now, Signature.of(self._resolve()))
            with self._lock:
                self._known = known
        return known[1]
