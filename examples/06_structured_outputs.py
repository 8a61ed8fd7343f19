"""Models return dicts, tuples and dataclasses of arrays: they come back as they were, without pickle."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from mmcache import Cache


@dataclass
class Encoded:
    """What many vision towers return: features, and the grid that they came from."""

    pixel_values: npt.NDArray[np.float16]
    image_grid_thw: tuple[int, int, int]
    extra: dict[str, npt.NDArray[np.int64]]


def encode_image(picture: Image.Image) -> Encoded:
    """Arrays of several dtypes plus small metadata."""
    pixels = np.asarray(picture, np.float16)
    return Encoded(pixels, (1, picture.height, picture.width), {"positions": np.arange(pixels.size)})


with Cache("cache-folder") as cache:
    encode = cache.wrap(encode_image, modality="image", signature="toy-tower-1", returns=[Encoded])
    computed = encode(Image.linear_gradient("L"))
    stored = encode(Image.linear_gradient("L"))

    assert isinstance(stored, Encoded)
    assert np.array_equal(stored.pixel_values, computed.pixel_values)
    assert stored.image_grid_thw == (1, 256, 256)
    assert not stored.extra["positions"].flags.writeable, "hits are read-only views; copy to write"
    print(type(stored).__name__, stored.pixel_values.dtype, stored.image_grid_thw, list(stored.extra))
