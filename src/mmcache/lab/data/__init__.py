"""Real pictures, texts and speech out of pinned packages. Licences: docs/reference/data-licences.md."""

from mmcache.lab.data.pictures import CLIPS, frames, portrait, shapes
from mmcache.lab.data.speech import RATE, Clip, speech
from mmcache.lab.data.texts import documents, paragraphs, questions

__all__ = ["CLIPS", "RATE", "Clip", "documents", "frames", "paragraphs", "portrait", "questions", "shapes", "speech"]
