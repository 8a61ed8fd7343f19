"""Print in pictures by PP-OCRv4 (RapidOCR, Apache-2.0): the finder of lines and the reader of one, apart.

Apart, because they are cached apart: a line is stored as a region of its frame.
"""

from __future__ import annotations

from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from mmcache.model.errors import SettingsError
from mmcache.model.signature import Signature

if TYPE_CHECKING:
    from PIL.Image import Image

INSTALL = "pip install 'mmcache[warm]'"
MARGIN = 2
"""Pixels that a found box is widened by on each side: the finder cuts close."""
MODELS = {"find": "ch_PP-OCRv4_det_infer.onnx", "read": "ch_PP-OCRv4_rec_infer.onnx"}


class Print:
    """Finds lines of print, and reads them. Models load at the first picture."""

    def __init__(self, threads: int = 0) -> None:
        """threads: of one call; 0 = the runtime's choice. Raises `SettingsError` where it is not installed."""
        spec = find_spec("rapidocr_onnxruntime")
        places = list(spec.submodule_search_locations or ()) if spec else []
        if not places:
            raise SettingsError(f"reading print needs RapidOCR: {INSTALL}")
        self._folder = Path(places[0]) / "models"
        self._threads = threads

    def signature(self, what: str) -> Signature:
        """Of `find` or `read`: the weights by content, the code by version. Raises `SettingsError`."""
        try:
            weights = blake3((self._folder / MODELS[what]).read_bytes()).hexdigest()[:32]
            code = f"rapidocr-{version('rapidocr-onnxruntime')} onnxruntime-{version('onnxruntime')}"
        except (OSError, PackageNotFoundError) as error:
            raise SettingsError(f"RapidOCR's model is not where it belongs; {INSTALL}") from error
        return Signature(model_version=f"pp-ocrv4-{weights}", preprocess=code, function=f"mmcache.warm.{what}-1")

    @cached_property
    def _engine(self) -> Any:
        try:
            from rapidocr_onnxruntime import RapidOCR
        except ImportError as error:  # OpenCV's own libraries, for example
            raise SettingsError(f"RapidOCR cannot be loaded: {error}; {INSTALL}") from error
        threads = {"intra_op_num_threads": self._threads} if self._threads else {}
        return RapidOCR(**threads)

    def find(self, picture: Image) -> npt.NDArray[np.int32]:
        """int32 [n, 4]: x, y, width, height of lines of print, from the top; inside the picture."""
        pixels = np.ascontiguousarray(np.asarray(picture.convert("RGB"))[:, :, ::-1])
        boxes, _ = self._engine.text_det(pixels)
        found = []
        for corners in () if boxes is None else self._engine.sorted_boxes(boxes):
            left, upper = np.floor(np.min(corners, axis=0)).astype(int) - MARGIN
            right, lower = np.ceil(np.max(corners, axis=0)).astype(int) + MARGIN
            left, upper = max(0, left), max(0, upper)
            right, lower = min(picture.width, right), min(picture.height, lower)
            if right > left and lower > upper:
                found.append((left, upper, right - left, lower - upper))
        return np.array(found, np.int32).reshape(-1, 4)

    def read(self, line: Image) -> dict[str, Any]:
        """`{"text": str, "score": 0…1}` of one line."""
        pixels = np.ascontiguousarray(np.asarray(line.convert("RGB"))[:, :, ::-1])
        found, _ = self._engine.text_rec([pixels])
        text, score = (found[0][0], found[0][1]) if found else ("", 0.0)
        return {"text": str(text), "score": round(float(score), 4)}
