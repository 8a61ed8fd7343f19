"""`VisionLanguage`: picture and question in, words out, one after the other, and where it looked for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from mmcache.lab.models.image import ImageEncoder
from mmcache.lab.models.vlm.decoder import Decoder, Seen, State
from mmcache.lab.models.vlm.weights import FILE, digest, load
from mmcache.lab.models.vlm.words import ANSWER, DESCRIBE, END, START, WEIGH, Words
from mmcache.model.errors import InvalidInputError
from mmcache.model.signature import Signature

Floats = npt.NDArray[np.float32]

SIDE = 16
"""Patches a side."""
LONGEST_ANSWER = 16
"""Pieces."""


@dataclass(frozen=True)
class Reading:
    """An answer and the cross-attention behind it."""

    answer: str
    words: tuple[str, ...]
    """The question's, then the answer's."""
    asked: int
    """How many of `words` are the question's."""
    attention: Floats
    """float32 [words, 16, 16]: for each word the share that each patch had; each map sums to 1.

    Of the last layer, mean over heads and over the word's pieces. A word of the question: as it was read. A word of
    the answer: as it was chosen, one position earlier.
    """


@dataclass(frozen=True)
class VisionLanguage:
    """Greedy decoding, so an answer is a function of picture and question. `signature` needs no loading.

    >>> from PIL import Image
    >>> model = VisionLanguage()
    >>> model.answer(Image.open("red-circle.png"), "what color is the shape?")  # doctest: +SKIP
    'red'
    """

    encoder: ImageEncoder = field(default_factory=ImageEncoder)
    path: Path = FILE

    @cached_property
    def signature(self) -> Signature:
        """The decoder's weights on top of the encoder's signature. Raises `AssetError`."""
        eye = self.encoder.signature
        return Signature(
            model_version=f"mmcache-vlm-sha256:{digest(self.path)}+{eye.model_version}",
            preprocess=eye.preprocess,
            tokenizer="in-weights",
            dtype="<f4",
            quantisation="f16",
            decoder=eye.decoder,
            device=eye.device,
        )

    @cached_property
    def _loaded(self) -> tuple[Decoder, Words]:
        return load(self.path)

    def load(self) -> None:
        """Load the decoder and the encoder now. Raises `AssetError`."""
        _ = self._loaded
        self.encoder.load()

    # A picture in ---------------------------------------------------------------------------------------------------

    def answer(self, picture: Image.Image | Floats, question: str) -> str:
        """The answer to `question`. `picture`: PIL, or its tokens, float32 [257, 384], as `ImageEncoder` gives them.

        Raises `InvalidInputError` for a question without words or with too many, and for tokens of another shape.
        """
        return "".join(self.stream(picture, question))

    def answers(self, picture: Image.Image | Floats, questions: Sequence[str | None]) -> list[str]:
        """As `answer` (None: as `describe`), for many questions about one picture, which is read once."""
        words, seen = self._loaded[1], self._look(picture)
        return [
            words.decode(piece for piece, _ in self._pieces(*self._begin(seen, question)[:2])) for question in questions
        ]

    def describe(self, picture: Image.Image | Floats) -> str:
        """What it takes the picture to be, in a few words."""
        return "".join(self.stream(picture))

    def stream(self, picture: Image.Image | Floats, question: str | None = None) -> Iterator[str]:
        """The answer's parts as they are found; joined, they are the answer. None: describe.

        Nothing is raised or computed before the first part is asked for.
        """
        words = self._loaded[1]
        begun = False
        for piece, _ in self._pieces(*self._begin(self._look(picture), question)[:2]):
            text = words.pieces[piece].replace(START, " ")
            yield text if begun else text.lstrip()
            begun = True

    def attention(self, picture: Image.Image | Floats, question: str | None = None) -> Floats:
        """float32 [words, 16, 16]; see `Reading.attention`, and `read` for the words."""
        return self.read(picture, question).attention

    def read(self, picture: Image.Image | Floats, question: str | None = None) -> Reading:
        """The answer, its words and the question's, and where the model looked for each."""
        words = self._loaded[1]
        state, logits, asked, places = self._begin(self._look(picture), question)
        found = list(self._pieces(state, logits))
        # Where each word's pieces were seen: the question's as they were read, the answer's as they were chosen.
        seen, last = list(enumerate(places)), len(asked) - 1
        for piece, chosen in found:
            last += words.pieces[piece].startswith(START) or last < len(asked)
            seen.append((chosen, last))
        total = last + 1
        maps = np.zeros((total, SIDE * SIDE), np.float32)
        for position, word in seen:
            maps[word] += state.attention[position]
        maps /= np.maximum(maps.sum(axis=1, keepdims=True), np.float32(1e-12))
        answer = words.decode(piece for piece, _ in found)
        return Reading(answer, (*asked, *answer.split()), len(asked), maps.reshape(total, SIDE, SIDE))

    # Steps ----------------------------------------------------------------------------------------------------------

    def _look(self, picture: Image.Image | Floats) -> Seen:
        return self._loaded[0].look(self.encoder.encode(picture) if isinstance(picture, Image.Image) else picture)

    def _begin(self, seen: Seen, question: str | None) -> tuple[State, Floats, list[str], list[int]]:
        """What is known after the prompt: the state, the logits of the first piece, the question's words, the place
        of the word for each of its pieces.
        """
        decoder, words = self._loaded
        if question is None:
            prompt, asked, places = [DESCRIBE], list[str](), list[int]()
        else:
            spelt, asked, places = words.encode(question)
            prompt = [*spelt, ANSWER]
        if len(prompt) + LONGEST_ANSWER > decoder.longest:
            most = decoder.longest - LONGEST_ANSWER - 1
            raise InvalidInputError(f"the question has {len(prompt)} pieces, more than {most}; ask something shorter")
        state = State.of(seen)
        for piece in prompt:
            logits = decoder.step(state, piece)
        return state, logits, asked, places

    def _pieces(self, state: State, logits: Floats) -> Iterator[tuple[int, int]]:
        """The answer's pieces, chosen greedily, each with the position that it was chosen at; what is weighed before a
        yes or no is left out. Until the end, or `LONGEST_ANSWER`.
        """
        decoder, weighing = self._loaded[0], False
        for _ in range(LONGEST_ANSWER):
            logits[[DESCRIBE, WEIGH, END] if weighing else [DESCRIBE, ANSWER]] = -np.inf
            piece, chosen = int(logits.argmax()), len(state.attention) - 1
            if piece == END:
                return
            if piece in (WEIGH, ANSWER):
                weighing = piece == WEIGH
            elif not weighing:
                yield piece, chosen
            logits = decoder.step(state, piece)


__all__ = ["LONGEST_ANSWER", "SIDE", "Reading", "VisionLanguage"]
