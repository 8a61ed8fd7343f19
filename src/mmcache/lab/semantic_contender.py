"""What every cache under comparison is asked, and how its answers are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mmcache.lab.semantic_stream import Request, about, answer_of

Floats = npt.NDArray[np.float32]
TextVector = Callable[[str], Floats]
PictureVector = Callable[[str], Floats]
"""By `Request.name`."""


class Contender(Protocol):
    """A cache in front of an answering model."""

    name: str

    def ask(self, request: Request, compute: Callable[[], str]) -> str:
        """The reply: a stored one, or `compute()`'s."""

    def close(self) -> None:
        """Let go of files and threads."""


@dataclass
class Score:
    """What a contender did with a stream."""

    requests: int = 0
    computed: int = 0
    wrong: int = 0
    """Served replies whose answer is not the right one."""
    blind: int = 0
    """Served replies that were computed for another picture."""
    blind_wrong: int = 0
    """Of these, with a wrong answer."""
    seconds: float = 0.0

    @property
    def hits(self) -> int:
        """Requests that were served without the model."""
        return self.requests - self.computed


def score(contender: Contender, requests: Iterable[Request]) -> Score:
    """Ask all of `requests` in order. The model says the truth: easy-VQA's own answers."""
    found = Score()
    start = perf_counter()
    for request in requests:
        computed = False

        def compute(request: Request = request) -> str:
            nonlocal computed
            computed = True
            return request.reply

        reply = contender.ask(request, compute)
        found.requests += 1
        found.computed += computed
        if not computed:
            wrong, other = answer_of(reply) != request.answer, about(reply) != request.picture
            found.wrong += wrong
            found.blind += other
            found.blind_wrong += other and wrong
    found.seconds = perf_counter() - start
    return found
