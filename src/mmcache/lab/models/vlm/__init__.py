"""The repository's own small vision-language model: frozen DINOv2 tokens → a two-layer cross-attention decoder.

It answers easy-VQA's questions about drawn shapes, and names emoji that it has seen drawn otherwise. It is no general
model: see docs/concepts/vlm.md and table `vqa`. Trained by `train.py`; read and run with numpy alone.
"""

from mmcache.lab.models.vlm.model import Reading, VisionLanguage

__all__ = ["Reading", "VisionLanguage"]
