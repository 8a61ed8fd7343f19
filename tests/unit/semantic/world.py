"""A small world of questions: pictures, wordings that mean the same, and a model that answers."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mmcache import Cache
from mmcache.calibration.base import Verdict
from mmcache.keys.content import identify
from mmcache.likeness.base import Likeness
from mmcache.likeness.words import differences
from mmcache.semantic.prompt import Prompt
from mmcache.semantic.settings import Semantic

WORDINGS = {
    "animal": ("What animal is it?", "Which animal is this?", "Tell me the animal."),
    "colour": ("What colour is it?", "Which colour does it have?"),
    "serial": ("Read the serial number.",),
}
MODEL = "toy-vlm 1.0"


def meaning_of(text: str) -> str:
    """Which of `WORDINGS` a text is one of, or the text itself."""
    return next((meaning for meaning, texts in WORDINGS.items() if text in texts), text)


def embed(text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Wordings of one meaning lie 0.95 apart, others do not touch. float32 [64]."""
    rng = np.random.default_rng([*meaning_of(text).encode()])
    base = rng.standard_normal(64)
    own = np.random.default_rng([*text.encode()]).standard_normal(64)
    vector = base / np.linalg.norm(base) + 0.3 * own / np.linalg.norm(own)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


def picture(number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A picture unlike any other. uint8 [48, 64, 3]."""
    rng = np.random.default_rng(number)
    coarse = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return np.repeat(np.repeat(coarse, 8, 0), 8, 1)


def semantic(**changes: Any) -> Semantic:
    """With the toy embedding, and a promise that is soon learned."""
    options: dict[str, Any] = {"max_error": 0.1, "text": embed, "embedder": "toy 1", "check_share": 0.05}
    return Semantic(**(options | changes))


class Model:
    """Answers from the picture and the meaning of the question; counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.asked: list[Prompt] = []
        self.lock = threading.Lock()
        self.truth: Callable[[Prompt], str] = true_answer

    def __call__(self, prompt: Prompt) -> str:
        with self.lock:
            self.calls += 1
            self.asked.append(prompt)
        return self.truth(prompt)

    def stream(self, prompt: Prompt) -> Iterator[str]:
        """The answer, word by word."""
        yield from self(prompt).split()


def true_answer(prompt: Prompt) -> str:
    """Right for this picture and meaning."""
    seen = "-".join(str(int(np.asarray(part).sum())) for part in prompt.pictures)
    return f"{meaning_of(prompt.text)} {seen}"


def teach(ask: Callable[[Prompt], Any], model: Model, rounds: int = 400, start: int = 1000) -> None:
    """Ask two wordings about each of many pictures, until other wordings may be trusted."""
    one, other = WORDINGS["animal"][:2]
    for number in range(start, start + rounds):
        ask(Prompt(one, pictures=[picture(number)]))
        ask(Prompt(other, pictures=[picture(number)]))


def trust(
    cache: Cache,
    texts: Sequence[str] = WORDINGS["animal"][:2],
    rounds: int = 4000,
    form: str = "ask",
    tenant: str = "default",
) -> None:
    """The same at once: as if `rounds` comparisons of these wordings, about pictures, had come out right."""
    model = Model()
    prompts = [Prompt(text, pictures=[picture(900)]) for text in texts]
    planner = cache.meaning.planner
    assert planner is not None
    found = []
    for prompt in prompts:
        if form == "ask":
            cache.ask(prompt, model, model=MODEL, tenant=tenant)
        else:
            list(cache.ask_stream(prompt, model.stream, model=MODEL, tenant=tenant))
        (key,) = planner.questions.about(identify(picture(900), "image", salt=_salt(cache, tenant)).digest)[-1:]
        found.append(key)
    (scope,) = {cache.scopes.require(key) for key in found}
    entries = [planner.questions.entry(key) for key in found]
    one, other = (entry for entry in entries if entry is not None)
    learner = planner.populations.of(scope, "text+image")
    likeness = Likeness(
        other.words, one.words, float(one.vector @ other.vector), differences(other.analysed, one.analysed)
    )
    for n in range(rounds):
        decision = learner.calibration.decide(likeness, n % 97 / 97)
        if decision.verdict is not Verdict.SERVE:
            learner.calibration.learn(likeness, decision, True)
    planner._rng = Unchecked()


class Unchecked(random.Random):
    """Draws no check, so that what is trusted is served, always."""

    def random(self) -> float:
        """The last number that there is."""
        return 1 - 2**-53


def _salt(cache: Cache, tenant: str) -> bytes:
    key = cache.key("", modality="text", signature=MODEL, tenant=tenant)
    return cache.scopes.require(key).salt
