"""The variants of a captioner that table `vlm` compares. All read the same tokens and decode greedily.

| variant | kept from earlier requests |
|---|---|
| `none` | nothing: encoder, search, whole prompt |
| `system` | keys and values of the system prompt (a text-only KV cache) |
| `prefix` | keys and values of every beginning of a prompt, by its tokens (what engines call prefix caching) |
| `ours` | blocks of the product's cache by picture: encoder output, keys and values of the prompt up to the question |
| `ours+fp16`, `ours+int4` | the same, stored in fewer bits |
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from mmcache import Cache, Signature
from mmcache.lab.captioner.gallery import SHRINKAGE, Gallery
from mmcache.lab.captioner.language import Language
from mmcache.lab.data.concepts import on_white
from mmcache.lab.models import ImageEncoder

VARIANTS = ("none", "system", "prefix", "ours", "ours+fp16", "ours+int4")
AT_REST = {"ours": "raw", "ours+fp16": "fp16", "ours+int4": "int4:group=64"}
LOOKS = 6
"""Drawings that stand in a prompt."""

SYSTEM = (
    "<|im_start|>system\nYou write captions of pictures. You are told which known drawing looks most like a picture, "
    "and which ones look a little like it.<|im_end|>\n"
    "<|im_start|>user\nThe picture looks most like: dog face (dog, pet).\nA little like: wolf, fox, raccoon, cat.\n"
    "Write a caption of the picture.<|im_end|>\n<|im_start|>assistant\nA dog face, the face of a pet.<|im_end|>\n"
    "<|im_start|>user\nThe picture looks most like: red apple (fruit, health).\nA little like: tomato, cherries.\n"
    "What is it? Answer in one short sentence.<|im_end|>\n<|im_start|>assistant\n"
    "It is a red apple, a fruit.<|im_end|>\n"
)
PICTURE = "<|im_start|>user\nThe picture looks most like: {first}.\nA little like: {others}.\n"
QUESTION = "{question}<|im_end|>\n<|im_start|>assistant\n"
QUESTIONS = (
    "Write a caption of the picture.",
    "What is it? Answer in one short sentence.",
    "Name it, and say one thing about it.",
)


class Captioner:
    """One variant. `root`: the folder of the cache of `ours`."""

    def __init__(self, variant: str, root: Path, *, threads: int = 0) -> None:
        self.variant, self._root = variant, root
        self.language, self._gallery = Language(threads), Gallery()
        self._encoder = ImageEncoder(threads)
        self.encoded = self.read = 0
        """How often the encoder ran, and how many tokens of prompts were read."""
        self._cache: Cache | None = None
        self._runs = 0
        self.language.load()
        self._encoder.load()
        self._gallery.load()
        self.system = self.language.encode(SYSTEM)
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.close()
        self.encoded = self.read = 0
        self._prefixes: dict[tuple[int, ...], Any] = {}
        self._looks: dict[str, list[int]] = {}
        if self.variant in AT_REST:
            self._runs += 1
            self._cache = Cache(self._root / str(self._runs), memory="512MiB", disk="2GiB", codec=AT_REST[self.variant])
            self._features = self._cache.wrap(self._seen, modality="image", signature=self._encoder.signature)
        self._known = None if self.variant == "none" else self.language.extend(self.system)[1]

    def close(self) -> None:
        """Close the cache."""
        if self._cache is not None:
            self._cache.close()

    # A request -------------------------------------------------------------------------------------------------------

    def answer(self, picture: bytes, question: str) -> tuple[str, Any]:
        """The sentence, and the logits of its first token. `picture`: an encoded file."""
        asked = self.language.encode(QUESTION.format(question=question))
        if self.variant in AT_REST:
            return self._finish(asked, self.block(picture))
        looks = self.looks(self._seen(_opened(picture)))
        if self.variant == "none":
            return self._finish([*self.system, *looks, *asked], None)
        if self.variant == "system":
            return self._finish([*looks, *asked], self._known)
        place = tuple(looks)
        if place not in self._prefixes:
            self._prefixes[place] = self._extended(looks)
        return self._finish(asked, self._prefixes[place])

    def block(self, picture: bytes) -> Any:
        """Keys and values of the prompt up to the question, from the cache."""
        assert self._cache is not None
        key = self._cache.key(picture, modality="image", signature=self.signature)
        return self._cache.get_or_compute(key, lambda: self.staged(picture))

    def staged(self, picture: bytes) -> Any:
        """The same, computed."""
        seen: Callable[[bytes], Any] = self._features if self._cache is not None else lambda p: self._seen(_opened(p))
        return self._extended(self.looks(seen(picture)))

    @property
    def signature(self) -> Signature:
        """All that keys and values depend on besides the picture."""
        eye = self._encoder.signature
        return Signature(
            model_version=f"{self.language.version} {eye.model_version} gallery-{self._gallery.digest[:32]}",
            preprocess=f"{eye.preprocess} {SHRINKAGE} {LOOKS} {SYSTEM} {PICTURE}",
            dtype="<f4",
            decoder=eye.decoder,
            device=eye.device,
            function="captioner keys-and-values",
        )

    def looks(self, features: Any) -> list[int]:
        """The picture's piece of the prompt."""
        return self.language.encode(piece(self._gallery.nearest(features, LOOKS)))

    def _seen(self, picture: Image.Image) -> Any:
        self.encoded += 1
        return self._encoder.encode(on_white(picture))

    def _extended(self, looks: list[int]) -> Any:
        self.read += len(looks)
        return self.language.extend(looks, self._known)[1]

    def _finish(self, tokens: list[int], known: Any) -> tuple[str, Any]:
        self.read += len(tokens)
        return self.language.answer(tokens, known)


def piece(captions: list[str]) -> str:
    """A picture in words: the nearest drawing's name and tags, and the names of the others."""
    first, *others = (caption.split(": ", 1) for caption in captions)
    told = f"{first[0]} ({first[1]})" if len(first) > 1 else first[0]
    return PICTURE.format(first=told, others=", ".join(name for name, *_ in others))


def _opened(picture: bytes) -> Image.Image:
    import io

    with Image.open(io.BytesIO(picture)) as opened:
        return on_white(opened)
