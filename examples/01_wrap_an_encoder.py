"""Put a cache in front of the encoder that you have: the same picture is encoded once."""

import numpy as np
import numpy.typing as npt
from PIL import Image

from mmcache import Cache

calls = 0


def encode_image(picture: Image.Image) -> npt.NDArray[np.float32]:
    """Stands for your vision encoder: 16 patches of 3 channels."""
    global calls
    calls += 1
    return np.asarray(picture.convert("RGB").resize((4, 4)), np.float32).reshape(16, 3) / 255


picture = Image.radial_gradient("L").convert("RGB")
picture.save("picture.png")
picture.save("picture.bmp")

with Cache(memory="64MiB") as cache:
    # The signature names the version of your weights: change it, and nothing old is ever served.
    encode = cache.wrap(encode_image, modality="image", signature="toy-encoder-1")

    first = encode(picture)
    again = encode("picture.png")  # other container, same pixels: the same key
    bitmap = encode("picture.bmp")

    assert calls == 1
    assert np.array_equal(first, again)
    assert np.array_equal(first, bitmap)
    print(f"3 requests, {calls} computation; hit ratio {cache.stats().hit_ratio:.2f}")
    print(encode.explain("picture.png"))
