"""`ContentOptions`: how media is read, and how much of it may be."""

from __future__ import annotations

from dataclasses import dataclass

from mmcache.model.errors import SettingsError


@dataclass(frozen=True, slots=True)
class ContentOptions:
    """Part of what a key means: with other options, the model would be given something else."""

    max_pixels: int = 89_478_485
    """Largest width × height of a picture or frame; the default is where Pillow starts to warn of bombs."""
    max_encoded_bytes: int = 4 << 30
    """Largest file or encoded byte string."""
    sample_rate: int = 16_000
    """Hz that audio is resampled to."""
    max_audio_seconds: float = 6 * 3600.0
    """Longest audio that is decoded."""
    frame_seconds: float = 1.0
    """Seconds between two sampled frames of a video file; 0 = every frame."""
    max_frames: int = 64
    """Sampling of a video file ends after this many frames."""

    def __post_init__(self) -> None:
        if min(self.max_pixels, self.max_encoded_bytes, self.sample_rate, self.max_frames) < 1:
            raise SettingsError("max_pixels, max_encoded_bytes, sample_rate and max_frames must be at least 1")
        if not (self.max_audio_seconds > 0 and self.frame_seconds >= 0):
            raise SettingsError("max_audio_seconds must be positive, frame_seconds 0 or more")
