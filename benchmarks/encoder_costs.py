"""What the real encoders cost by modality and scale, beside the constants that the laboratory's cost model uses."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

from mmcache.lab.bench import main
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.lab.traces.encoder_costs import CURVES, SCALES, measure


class EncoderCosts(Table):
    """Milliseconds of processor time on one thread."""

    name: ClassVar[str] = "bench-encoder_costs"
    title: ClassVar[str] = "Encoders: processor time by modality and scale, of which the cost model `encoder` is made"
    remark: ClassVar[str] = (
        "Scale 1 is 8 words of technical prose, one picture of one tile, a clip of 3.75 s, a video of 4 frames. "
        "`÷ model` is what was measured now over the constant in mmcache.lab.traces.encoder_costs: policies see ratios "
        "between modalities, so what matters is that these are alike."
    )

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Runs the packaged encoders. Raises `AssetError` where they are missing."""
        found = measure(3 if quick else 15, progress)
        rows = []
        for modality, by_scale in found.items():
            for scale, samples, constant in zip(SCALES, by_scale, CURVES[modality].milliseconds, strict=True):
                rows += [
                    Row.of(f"{modality}/{scale}", "processor time", "ms", "lower", samples),
                    Row.of(f"{modality}/{scale}/model", "÷ model", "x", "lower", [ms / constant for ms in samples]),
                ]
        real = ("multilingual-e5-small, DINOv2 ViT-S/14 and Whisper base, one thread each",)
        simulated = ("a video is its frames' pictures", "pictures and sounds of noise: times do not depend on content")
        return Result(self.name, quick, tuple(seeds), real, simulated, tuple(rows))


if __name__ == "__main__":
    sys.exit(main(EncoderCosts()))
