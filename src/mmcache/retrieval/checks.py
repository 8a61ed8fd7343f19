"""What a `Retrieval` is made with, looked at before anything is."""

from __future__ import annotations

from typing import Any, get_args

from mmcache.model.errors import SettingsError
from mmcache.retrieval.queries import Strategy
from mmcache.retrieval.tolerance import Tolerance


def check_encoders(**encoders: Any) -> None:
    """`picture` and `text`. Raises `SettingsError` for what `cache.wrap` did not return for that modality."""
    for name, encoder in encoders.items():
        modality = "image" if name == "picture" else name
        found = getattr(getattr(encoder, "signature", None), "modality", None)
        if found != modality or not hasattr(encoder, "options"):
            raise SettingsError(
                f"{name} is an encoder, cache.wrap(your_function, modality={modality!r}, …), not {encoder!r:.80}"
            )


def check_settings(near: Any, strategy: Any, check_share: Any, remember: Any, observe: bool) -> None:
    """Raises `SettingsError`; see `Retrieval`."""
    if near is not None and not isinstance(near, Tolerance):
        raise SettingsError(f"near is a Tolerance(picture=…, text=…) or None, not {near!r:.80}")
    if strategy not in get_args(Strategy):
        raise SettingsError(f"a strategy is one of {', '.join(get_args(Strategy))}, not {strategy!r}")
    if isinstance(check_share, bool) or not isinstance(check_share, int | float) or not 0.0 <= check_share <= 1.0:
        raise SettingsError(f"check_share is a share between 0 and 1, not {check_share!r}")
    if type(remember) is not int or remember < 0 or ((near is not None or observe) and not remember):
        raise SettingsError(f"remember is a number of queries, 0 or more; near hits need some; not {remember!r}")
