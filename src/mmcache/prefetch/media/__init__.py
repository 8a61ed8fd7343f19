"""Warming a cache with what is in a video: frames worth looking at, print in them, and speech, on one timeline.

>>> from mmcache.prefetch.media import warm_video
>>> warmed = warm_video(cache, "talk.mp4", {"frame": encode, "read": read, "hear": hear})
>>> warmed.timeline.at(61_000).speech
"""

from mmcache.prefetch.media.encoders import Encoders, packaged
from mmcache.prefetch.media.frames import frame_at
from mmcache.prefetch.media.sound import sound_of
from mmcache.prefetch.media.timeline import Timeline
from mmcache.prefetch.media.uses import Uses
from mmcache.prefetch.media.warm import Warmed, WarmOptions, warm_video

__all__ = ["Encoders", "Timeline", "Uses", "WarmOptions", "Warmed", "frame_at", "packaged", "sound_of", "warm_video"]
