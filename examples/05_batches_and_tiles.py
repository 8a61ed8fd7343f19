"""Only what is missing reaches the model: of a batch, and of a picture's tiles."""

import numpy as np
import numpy.typing as npt
from PIL import Image

from mmcache import Cache

batches: list[int] = []


def encode_one(picture: Image.Image) -> npt.NDArray[np.float32]:
    """One picture in, one vector out."""
    return np.asarray(picture.convert("RGB"), np.float32).mean((0, 1))


def encode_many(pictures: list[Image.Image]) -> npt.NDArray[np.float32]:
    """The batched form of the same model."""
    batches.append(len(pictures))
    return np.stack([encode_one(picture) for picture in pictures])


colours = [Image.new("RGB", (64, 64), colour) for colour in ("red", "green", "blue", "white")]

with Cache(memory="64MiB") as cache:
    encode = cache.wrap(encode_one, batch=encode_many, modality="image", signature="toy-encoder-1")

    encode.batch(colours[:2])
    features = encode.batch([*colours, colours[0]], stack=True)  # two are known, one comes twice
    assert features.shape == (5, 3)
    assert batches == [2, 2]

    page = Image.effect_noise((448, 448), 64).convert("RGB")
    encode.tiles(page, tile=224, box=(0, 0, 224, 448))  # the left half: two tiles
    whole = encode.tiles(page, tile=224)  # all four: the right half is computed, the left is reused
    assert whole.shape == (4, 3)
    assert batches == [2, 2, 2, 2]
    print(f"pictures per model call: {batches}")
