"""Real reading of print: PP-OCRv4's recogniser (packaged by RapidOCR) on one line, by onnxruntime.

Only the weights file of the package is read. A line comes with a confidence for each character, so that "text below a
confidence is cut off", what the naive key's pipeline does, can be done as it would be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from mmcache.lab.assets import Asset

WEIGHTS = Asset(
    "rapidocr_onnxruntime",
    "models/ch_PP-OCRv4_rec_infer.onnx",
    "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
)
LEAST_CONFIDENCE = 0.6
"""Where a character is read with less, the naive pipeline cuts the text off."""


@dataclass(frozen=True)
class Reading:
    """What was read of a line."""

    text: str
    confidences: tuple[float, ...]
    """Of each character, 0…1."""

    @property
    def confidence(self) -> float:
        """Their mean; 0 where nothing was read."""
        return float(np.mean(self.confidences)) if self.confidences else 0.0

    @property
    def cut(self) -> str:
        """The text up to the first character that is too uncertain."""
        sure = [one >= LEAST_CONFIDENCE for one in self.confidences]
        return self.text[: sure.index(False) if False in sure else len(sure)]

    def features(self) -> npt.NDArray[np.float32]:
        """float32 [3]: mean and least confidence, characters."""
        return np.array([self.confidence, min(self.confidences, default=0.0), len(self.text)], np.float32)


@cache
def _session() -> tuple[Any, list[str]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(WEIGHTS.read(), options, providers=["CPUExecutionProvider"])
    alphabet = session.get_modelmeta().custom_metadata_map["character"].splitlines()
    return session, ["", *alphabet, " "]


def read(strip: Image.Image, blur: float = 0.0) -> Reading:
    """Read a line of 48 pixels' height, blurred first by a Gaussian of `blur` pixels. About 40 ms. `AssetError`."""
    session, alphabet = _session()
    page = strip.filter(ImageFilter.GaussianBlur(blur)) if blur else strip
    scaled = (np.asarray(page, np.float32) / 255 - 0.5) / 0.5
    (chances,) = session.run(None, {session.get_inputs()[0].name: scaled.transpose(2, 0, 1)[None]})
    best, sure = chances[0].argmax(1), chances[0].max(1)
    # Connectionist temporal classification: repeats and blanks (class 0) fall away.
    kept = [place for place, one in enumerate(best) if one and (not place or one != best[place - 1])]
    return Reading("".join(alphabet[best[place]] for place in kept), tuple(float(sure[place]) for place in kept))
