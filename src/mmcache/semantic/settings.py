"""`Semantic`: what the user allows, and how inputs are compared. `Reply`: what asking gave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from mmcache.calibration.base import Decision
from mmcache.keys.options import ContentOptions
from mmcache.likeness.base import Nearness
from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.semantic import lexical
from mmcache.semantic.identity import identity
from mmcache.semantic.judge import Judge, same_answer


@dataclass(frozen=True)
class Semantic:
    """Serve stored answers to questions in other words, or about nearly the same picture, where that was learned.

    >>> Cache(semantic=Semantic(max_error=0.01, text=embed, embedder="e5-small 1.0"))
    """

    max_error: float = 0.01
    """P(wrong | near hit) that is allowed, 0.001 to 0.2, by tenant, model and kind of prompt."""
    confidence: float = 0.95
    """With which it is kept, at all times at once."""
    text: Callable[[str], Any] | None = None
    """Text → one vector (floats, of any length but always the same); None = `lexical.embed`, which needs no model."""
    embedder: str | Signature | None = None
    """Which version of which embedding `text` is. Vectors of two embedders never meet."""
    check_share: float = 0.05
    """Of near hits, computed anew and compared: what the report and the promise rest on. 0.001 to 1: without checks
    nothing is promised."""
    judge: Judge = same_answer
    """Says whether the stored answer was right, given the computed one."""
    least_similarity: float = 0.6
    """Cosine below which no stored question is considered, nor compared."""
    picture: Nearness = Nearness.TRIMMED
    """How near pictures may be at most that are ever considered alike; `Nearness.SAME` = only the very same."""
    sound: Nearness = Nearness.TRIMMED
    most_entries: int = 20_000
    """Stored questions that near answers are looked for among, over all tenants; the oldest leave. Each takes about
    4 KB of memory at 384 dimensions, and each picture 7 KB, beside what the cache itself holds."""
    content: ContentOptions = field(default_factory=ContentOptions)
    """How pictures and sounds are read."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("max_error", 0.001, 0.2), ("confidence", 0.5, 0.9999), ("check_share", 0.001, 1.0),
            ("least_similarity", -1.0, 1.0),
        ):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
                raise SettingsError(f"Semantic({name}=…) is a number from {low} to {high}, not {value!r}")
        most = self.most_entries
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise SettingsError(f"Semantic(most_entries=…) is a number of questions, 1 or more, not {most!r}")
        for name, fits, takes in (
            ("text", self.text is None or callable(self.text), "a function of a text that gives its vector"),
            ("judge", callable(self.judge), "a function of the stored and the computed answer: right, wrong or None"),
            ("picture", isinstance(self.picture, Nearness), "a Nearness, such as Nearness.SAME"),
            ("sound", isinstance(self.sound, Nearness), "a Nearness, such as Nearness.SAME"),
            ("content", isinstance(self.content, ContentOptions), "a ContentOptions"),
        ):
            if not fits:
                raise SettingsError(f"Semantic({name}=…) is {takes}, not {getattr(self, name)!r}")
        if self.text is None and self.embedder is not None:
            raise SettingsError(f"Semantic(embedder={self.embedder!r}) names an embedding: pass it as text=…, too")
        if self.text is not None and self.embedder is None and self._signed() is None:
            raise SettingsError(
                "Semantic(text=…) needs embedder=…: a string that names the embedding and its version, so that vectors "
                "kept from earlier are never compared with another embedding's"
            )

    @property
    def embed(self) -> Callable[[str], Any]:
        """The embedding in use."""
        return self.text or lexical.embed

    @property
    def embedder_signature(self) -> Signature:
        """Of `embed`. Raises `UnversionedModelError`."""
        if self.embedder is not None:
            return Signature.of(self.embedder)
        return Signature(model_version=lexical.VERSION) if self.text is None else self._signed() or Signature()

    def _signed(self) -> Signature | None:
        """What the embedding says of itself: `signature` of the callable, or of the object whose method it is."""
        for holder in (self.text, getattr(self.text, "__self__", None)):
            if isinstance(signature := getattr(holder, "signature", None), Signature):
                return signature
        return None

    @property
    def judge_name(self) -> str:
        """For reports. One without a name of its own has a mark of what it does."""
        name = getattr(self.judge, "__qualname__", None)
        if isinstance(name, str) and "<" not in name:
            return name
        return f"{name or type(self.judge).__qualname__} {identity(self.judge).hex()[:8]}"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer and where it came from."""

    value: Any
    source: Literal["exact", "near", "computed"]
    """`exact`: stored for this very prompt. `near`: stored for another one, trusted. `computed`: now, or by another
    caller at the same time."""
    key: Key | None
    """Of what was served; None where the cache stepped aside."""
    decision: Decision | None = None
    """About the nearest stored question, where there was one."""
    stored_text: str | None = None
    """That question's text."""

    @property
    def hit(self) -> bool:
        """Whether nothing was computed for it."""
        return self.source != "computed"
