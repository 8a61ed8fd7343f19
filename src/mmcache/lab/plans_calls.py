"""What a caller of an encoder sees of plans: whole calls, with and without them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from time import thread_time

import numpy as np

from mmcache.cache import Cache
from mmcache.lab.measure import interleave
from mmcache.lab.plans_recurring import EVERY, RECURRENCES, Plans
from mmcache.lab.plans_wired import wire
from mmcache.lab.table import Row

FASTER = 0.95
"""A call of hits must take so much of what it took, or nobody notices."""
SLOWER = 1.02
"""A call that plans cannot answer may take so much of what it took."""
BATCH = 8

Call = Callable[[], object]


def call_rows(rounds: int) -> list[Row]:
    """Three rows a call: its CPU time, and with a plan in, and with none in, as shares of it."""
    rows = []
    with Cache(memory="256MiB") as cache:
        for name, (words, hits, call) in _calls(cache).items():
            plans, elsewhere = (
                Plans(cache._store, cache.scopes, cache._tally, cache.events, cache.clock, recurrences=recurrences)
                for recurrences in (RECURRENCES, 1 << 60)
            )
            wire(cache.answers, plans)
            for _ in range(2 * RECURRENCES * EVERY):
                call()
            times = interleave(
                {
                    "general": _behind(cache, None, call),
                    "planned": _behind(cache, plans, call),
                    "unplanned": _behind(cache, elsewhere, call),
                },
                rounds=rounds, per=CALLS, least_seconds=0.002, clock=thread_time,
            )  # fmt: skip
            wire(cache.answers, None)
            general = times["general"]
            rows += [
                Row.of(
                    f"call/{name}/ratio", f"{words}: with plans ÷ without", "x", "lower",
                    times["planned"].over(general), target=FASTER if hits else SLOWER,
                ),
                Row.of(
                    f"call/{name}/unplanned", f"{words}: with plans, but none for it ÷ without", "x", "lower",
                    times["unplanned"].over(general), target=SLOWER,
                ),
                Row.of(f"call/{name}/general", f"{words}, without plans", "µs", "lower", general.scaled(1e6)),
            ]  # fmt: skip
    return rows


CALLS = 8
"""Between two changes of what is in front."""


def _behind(cache: Cache, plans: Plans | None, call: Call) -> Call:
    def several() -> None:
        wire(cache.answers, plans)
        for _ in range(CALLS):
            call()

    return several


def _calls(cache: Cache) -> dict[str, tuple[str, bool, Call]]:
    """Name → in words, whether all of it is in memory, the call."""
    from io import BytesIO

    from PIL import Image

    page, file = np.random.default_rng(0).integers(0, 256, (448, 448, 3), np.uint8), BytesIO()
    Image.fromarray(page).save(file, "PNG")
    picture = file.getvalue()
    words = [f"line {n} of what an OCR engine reads on such a page, " * 4 for n in range(BATCH)]
    fresh = count()

    @cache.wrap(modality="image", signature="image-model-1", guard=False)
    def image(source: object) -> object:
        return np.ones((257, 384), np.float16)

    @cache.wrap(modality="text", signature="text-model-1", guard=False)
    def text(source: object) -> object:
        return np.ones(384, np.float32)

    def both() -> None:
        image(picture)
        text(words[0])

    return {
        "picture+text": ("a picture (PNG, 448²) and its OCR text, an encoder each", True, both),
        "text": ("one text", True, lambda: text(words[0])),
        "batch": (f"{BATCH} texts in a batch", True, lambda: text.batch(words)),
        "tiles": ("4 tiles of a picture", True, lambda: image.tiles(picture, tile=224, stack=False)),
        "misses": ("4 texts in a batch, none known", False, lambda: text.batch([f"{next(fresh)}" for _ in range(4)])),
    }
