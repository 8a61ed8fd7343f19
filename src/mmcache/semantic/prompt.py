"""`Prompt`: all that an answer depends on, part by part, and how each part is identified."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from blake3 import blake3

from mmcache.keys.arguments import canonical_arguments
from mmcache.keys.content import Content, ContentOptions, identify
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.model.errors import InvalidInputError
from mmcache.model.event import MissReason
from mmcache.model.key import Key
from mmcache.model.memo import Memo
from mmcache.model.signature import Signature
from mmcache.rows import Row
from mmcache.scopes import Scope, Scopes

Source = tuple[str, str]
"""What an answer rests on: its kind and its name."""


@dataclass(frozen=True)
class Unknown:
    """A part that nobody can name: stands in `Prompt.other`, and the cache steps aside."""

    why: str


@dataclass(frozen=True)
class Prompt:
    """One question to a model. Pictures and sounds are compared by likeness, `text` by meaning, all else exactly.

    >>> Prompt("What animal is it?", pictures=["cat.jpg"], system="Answer in one word.")
    """

    text: str
    """The question: the last thing that the user said."""
    pictures: Sequence[Any] = ()
    """In order; anything that `Cache.key` takes as an image."""
    sounds: Sequence[Any] = ()
    """In order; anything that `Cache.key` takes as audio."""
    system: Any = ""
    """The system prompt."""
    tools: Sequence[Any] | None = ()
    """Tool descriptions, or names. A dict's `name` (or `function.name`) is a source: see `Meaning.changed`. The order
    of tools and of their parameters counts, for the model reads them in it."""
    history: Any = ()
    """Earlier turns."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Temperature, seed, most tokens…"""
    schema: Any = None
    """What the answer must look like: a JSON schema (the order of its properties counts), a grammar."""
    documents: Sequence[str] | Mapping[str, str | bytes] = ()
    """Names of what was retrieved, or name → content or version. Content counts exactly, and so does the order."""
    version: str = ""
    """Of the prompt template."""
    rows: Sequence[Row] = ()
    """Database rows that the answer rests on; see `rows.Row`."""
    other: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the answer depends on."""

    def __post_init__(self) -> None:
        for names, types, takes in _TAKES:
            for name in names:
                if not isinstance(value := getattr(self, name), types):
                    raise InvalidInputError(f"Prompt({name}=…) takes {takes}, not {type(value).__name__}")
        for name in "documents", "sampling", "other":
            for part in getattr(self, name):
                if not isinstance(part, str):
                    raise InvalidInputError(f"Prompt({name}=…) has names that are strings, not {part!r}")

    def sources(self) -> tuple[Source, ...]:
        """What it rests on by name, besides pictures, sounds and model. Sorted, each once."""
        found = {("document", name) for name in self.documents} | {("tool", name) for name in _tool_names(self.tools)}
        if self.version:
            found.add(("prompt", self.version))
        return tuple(sorted(found))


_TAKES: Final[tuple[tuple[tuple[str, ...], tuple[type, ...], str], ...]] = (
    (("text", "version"), (str,), "a string"),
    (("pictures", "sounds", "rows"), (list, tuple), "a list, also of one"),
    (("tools",), (list, tuple, type(None)), "a list of names or descriptions"),
    (("documents",), (list, tuple, Mapping), "a list of names, or a mapping of names to contents or versions"),
    (("sampling", "other"), (Mapping,), "a mapping"),
)


@dataclass(frozen=True)
class Identified:
    """A prompt whose parts are known."""

    prompt: Prompt
    scope: Scope
    words: Content
    pictures: tuple[Content, ...]
    sounds: tuple[Content, ...]
    exact: bytes
    """16 bytes: all that must be equal for any two answers to be compared at all."""
    key: Key
    """The exact key."""
    sources: tuple[bytes, ...]
    """16 bytes each: what the answer rests on, see `source_id`."""
    editions: bytes
    """Which of them had changed, and how often, when this was identified."""
    form: str
    """What is stored: `value`, or `stream`, a list of chunks."""

    @property
    def kind(self) -> str:
        """Which modalities it has: each kind's promise is kept apart."""
        return "text" + "+image" * bool(self.pictures) + "+audio" * bool(self.sounds)

    @cached_property
    def canonical(self) -> Prompt:
        """What the model is given: exactly what the key describes. Raises `InvalidInputError`."""
        return replace(
            self.prompt,
            text=self.words.canonical(),
            pictures=tuple(part.canonical() for part in self.pictures),
            sounds=tuple(part.canonical() for part in self.sounds),
        )


def _tell_nobody(why: str) -> None:
    pass


def _no_rows(digest: bytes, salt: bytes, rows: Sequence[Row]) -> bytes | MissReason:
    raise InvalidInputError("a Prompt with rows= needs a cache with a shared tier")


@dataclass
class Identifier:
    """How the prompts of one cache are identified."""

    scopes: Scopes
    memo: Memo
    options: ContentOptions
    editions: dict[bytes, int]
    """`source_id` → how often it has changed. It enters keys, so that what rested on an earlier edition is out of
    reach for good, in every tier and after any restart."""
    epoch: bytes = b""
    """Other where editions were lost: see `Ledger.epoch`."""
    rows: Callable[[bytes, bytes, Sequence[Row]], bytes | MissReason] = _no_rows
    """See `Lower.mix`."""
    tell: Callable[[str], None] = _tell_nobody
    """Told why the cache steps aside: which part of a prompt is unknown."""

    def identify(
        self, prompt: Prompt, signature: Signature, tenant: str, namespace: str, *, alias: str, form: str
    ) -> Identified | None:
        """The parts of `prompt`; None where a part has no canonical bytes, so that the cache must step aside: `tell` is
        told which.

        alias: the model's name as a source. form: what is stored, `value` or `stream`. Raises `InvalidInputError`
        for content that cannot be read.
        """
        if not isinstance(prompt, Prompt):
            raise InvalidInputError(f"a Prompt is asked, not {type(prompt).__name__}: Prompt('What is it?')")
        bare = self.scopes.of(signature, tenant, namespace)
        salt = bare.salt
        words = identify(prompt.text, "text", salt=salt, memo=self.memo, options=self.options)
        pictures, sounds = (
            tuple(identify(part, modality, salt=salt, memo=self.memo, options=self.options) for part in parts)
            for modality, parts in (("image", prompt.pictures), ("audio", prompt.sounds))
        )
        decoders = sorted({part.decoder for part in (*pictures, *sounds) if part.decoder})
        scope = self.scopes.of(replace(signature, decoder="+".join(decoders)), tenant, namespace) if decoders else bare
        named = [source_id(salt, *source) for source in (("model", alias), *prompt.sources())]
        media = _media(salt, [part.digest for part in pictures], [part.digest for part in sounds])
        try:
            rest = _rest(prompt)
        except InvalidInputError as error:
            self.tell(f"stepping aside, for a part of the prompt is unknown: {error}")
            return None
        counts = framed(form, len(pictures).to_bytes(4, "big"), len(sounds).to_bytes(4, "big"))
        exact = _digest(salt, "exact", counts, rest, self.changed(named), self.epoch)
        if prompt.rows:
            mixed = self.rows(exact, salt, prompt.rows)
            if isinstance(mixed, MissReason):
                self.tell(f"stepping aside, for nobody can say what state its rows are in: {mixed}")
                return None
            exact = mixed
        parts = [part.digest for part in (*pictures, *sounds)]
        key = answer_key(scope.digest, salt, exact, words.digest, parts, self.changed(media))
        sources = (*named, *media)
        return Identified(prompt, scope, words, pictures, sounds, exact, key, sources, self.changed(sources), form)

    def changed(self, sources: Sequence[bytes]) -> bytes:
        """The editions of those that ever changed."""
        return b"".join(
            source + self.editions[source].to_bytes(8, "big") for source in sources if source in self.editions
        )

    def media_editions(self, salt: bytes, pictures: Sequence[bytes], sounds: Sequence[bytes]) -> bytes:
        """The editions of pictures and sounds, given by their 16-byte digests in order: the last part of a key."""
        return self.changed(_media(salt, pictures, sounds))


def answer_key(
    scope_digest: bytes, salt: bytes, exact: bytes, words: bytes, media: Sequence[bytes], editions: bytes
) -> Key:
    """The exact key of a prompt; here only is it made, so that what is stored of a prompt can be held against its key.

    exact, words: 16 bytes each. media: digests of pictures, then of sounds (`exact` holds how many of each there are).
    editions: see `Identifier.media_editions`.
    """
    return Key(scope_digest, _digest(salt, "answer", exact, words, *media, editions))


def _media(salt: bytes, pictures: Sequence[bytes], sounds: Sequence[bytes]) -> list[bytes]:
    return [
        *(source_id(salt, "image", digest.hex()) for digest in pictures),
        *(source_id(salt, "audio", digest.hex()) for digest in sounds),
    ]


def source_id(salt: bytes, kind: str, name: str) -> bytes:
    """16 bytes that name a source within its realm. Kinds: `model document tool prompt image audio`."""
    try:
        return _digest(salt, "source", kind.encode(), name.encode())
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"the name of a {kind} holds a lone surrogate; pass valid Unicode") from error


def _rest(prompt: Prompt) -> bytes:
    """All of a prompt but its words, pictures and sounds: equal exactly when they are. Raises `InvalidInputError`."""
    for name, value in prompt.other.items():
        if isinstance(value, Unknown):
            raise InvalidInputError(f"other.{name} is {value.why}")
    documents = prompt.documents
    parts = {
        "system": prompt.system,
        "tools": prompt.tools,
        "history": prompt.history,
        "sampling": dict(prompt.sampling),
        "schema": prompt.schema,
        "version": prompt.version,
        "documents": dict(documents) if isinstance(documents, Mapping) else list(documents),
        "other": dict(prompt.other),
    }
    ordered = [parts["tools"], parts["schema"], parts["documents"]]
    return framed("prompt", canonical_arguments((), parts), canonical_arguments(_orders(ordered)))


def _orders(value: Any) -> list[list[str]]:
    """The names of every dict in `value`, in the order that they were given in, which canonical bytes leave out.

    Not to be asked for before `value` is known to have canonical bytes, so to be neither deep nor endless.
    """
    if isinstance(value, dict):
        return [list(value), *(order for part in value.values() for order in _orders(part))]
    return [order for part in value for order in _orders(part)] if isinstance(value, list | tuple) else []


def _tool_names(tools: Any) -> list[str]:
    """Names of tools: strings, or dicts as OpenAI's or Anthropic's interfaces have them."""
    found = []
    for tool in tools or ():
        described = tool.get("function", tool) if isinstance(tool, Mapping) else tool
        name = described.get("name") if isinstance(described, Mapping) else described
        if isinstance(name, str):
            found.append(name)
    return found


def _digest(salt: bytes, label: str, *parts: bytes) -> bytes:
    return blake3(framed(label, *parts), key=salt).digest(length=DIGEST_BYTES)
