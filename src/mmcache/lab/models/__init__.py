"""Real encoders on the CPU, without torch. Weights come from pinned packages; each loads at its first input.

A signature is known without loading: it names the pinned digests, and nothing else is ever loaded.
"""

from mmcache.lab.models.image import ImageEncoder
from mmcache.lab.models.speech import SpeechEncoder
from mmcache.lab.models.text import TextEncoder

__all__ = ["ImageEncoder", "SpeechEncoder", "TextEncoder"]
