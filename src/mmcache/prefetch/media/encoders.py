"""`Encoders`: the models that a video is warmed with, each behind the cache.

| name | is given | gives |
|---|---|---|
| `frame` | an upright RGB picture | anything |
| `find` | an upright RGB picture | int32 [n, 4]: x, y, width, height of print in it |
| `read` | a region of one | `{"text": …, "score": …}`, or a str |
| `listen` | mono float32 PCM at 16 kHz | int32 [n, 2]: start and end of speech in ms |
| `hear` | a stretch of speech, likewise | `{"text": …}`, or a str |
| `text` | what was read or heard | anything |

All are optional: what is missing is left out. Without `find` the whole frame is read, without `listen` speech is cut
every 30 s. They are made by `Cache.wrap`, so what they give is stored under the content's own key and found by
whoever asks for the same frame, region, stretch or text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from blake3 import blake3

from mmcache.cache import Cache
from mmcache.encoder import Encoder
from mmcache.model.errors import SettingsError
from mmcache.prefetch.media.sound import RATE


@dataclass(frozen=True, slots=True)
class Encoders:
    """By what they do."""

    frame: Encoder | None = None
    find: Encoder | None = None
    read: Encoder | None = None
    listen: Encoder | None = None
    hear: Encoder | None = None
    text: Encoder | None = None

    @staticmethod
    def of(found: object) -> Encoders:
        """From a mapping of name to `Encoder`. Raises `SettingsError`."""
        if isinstance(found, Encoders):
            return found
        names = [field.name for field in fields(Encoders)]
        if not isinstance(found, Mapping):
            raise SettingsError(f"encoders are a mapping of {', '.join(names)}, not {type(found).__name__}")
        if unknown := [str(name) for name in found if name not in names]:
            raise SettingsError(f"no encoder is called {unknown[0]}; there are {', '.join(names)}")
        for name, encoder in found.items():
            if encoder is not None and not isinstance(encoder, Encoder):
                raise SettingsError(f"the encoder {name} is not made by cache.wrap(…): {type(encoder).__name__}")
        return Encoders(**found)

    def filled(self, others: Encoders) -> Encoders:
        """With those of `others` where this has none."""
        missing = {f.name: getattr(others, f.name) for f in fields(self) if getattr(self, f.name) is None}
        return replace(self, **missing)

    def only(self, *, frames: bool, ocr: bool, asr: bool) -> Encoders:
        """Without those that a switch turns off. Raises `SettingsError` where nothing is left to do."""
        off = [] if frames else ["frame"]
        off += [] if ocr else ["find", "read"]
        off += [] if asr else ["listen", "hear"]
        left = replace(self, **dict.fromkeys(off))
        if not (left.frame or left.read or left.hear):
            raise SettingsError(
                "there is nothing to warm: no encoder of frames, reader of print or hearer of speech; "
                "ask for ocr or asr, or give encoders"
            )
        return left

    def fingerprint(self) -> bytes:
        """16 bytes: of the scopes of their keys, so of signatures, decoders, tenants and namespaces."""
        hasher = blake3()
        for field in fields(self):
            encoder: Encoder | None = getattr(self, field.name)
            hasher.update(b"\0" * 48 if encoder is None else bytes(encoder.key(_sample(field.name))))
        return hasher.digest(length=16)


def _sample(name: str) -> Any:
    """The least that an encoder can be asked about; asking also makes its scope known to the cache."""
    if name == "text":
        return ""
    if name in ("listen", "hear"):
        return np.zeros(1, np.float32), RATE
    from PIL import Image

    return Image.new("RGB", (1, 1))


def packaged(cache: Cache, *, ocr: bool, asr: bool, asr_model: str | None = None, threads: int = 0) -> Encoders:
    """What the extra `warm` brings: RapidOCR finds and reads, Silero listens and Whisper hears.

    asr_model: a folder with a faster-whisper model; default: `whisper_folder()`. Raises `SettingsError`.
    """
    found = Encoders()
    if ocr:
        from mmcache.prefetch.media.ocr import Print

        print_ = Print(threads)
        found = replace(
            found,
            find=cache.wrap(print_.find, modality="image", signature=print_.signature("find"), guard=False),
            read=cache.wrap(print_.read, modality="image", signature=print_.signature("read"), guard=False),
        )
    if asr:
        from mmcache.prefetch.media.speech import Voice

        voice = Voice(asr_model, threads)
        found = replace(
            found,
            listen=cache.wrap(voice.listen, modality="audio", signature=voice.signature("listen"), guard=False),
            hear=cache.wrap(voice.hear, modality="audio", signature=voice.signature("hear"), guard=False),
        )
    return found
