"""Retrieval by picture and words: exact first, near where allowed, and where a lookup died."""

import numpy as np
import numpy.typing as npt
from PIL import Image

from mmcache import Cache
from mmcache.retrieval import Alignment, Locator, Retrieval, Tolerance

Floats = npt.NDArray[np.float32]
random = np.random.default_rng(0)
pictures = [Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize((64, 64)) for _ in range(40)]
captions = [f"figure {number} of chapter {number % 5}" for number in range(40)]


def see(picture: Image.Image) -> Floats:
    """Your picture model."""
    return np.asarray(picture.resize((8, 8)), np.float32).reshape(-1)


def read(text: str) -> Floats:
    """Your text model."""
    vector = np.zeros(128, np.float32)
    for word in text.lower().split():
        vector[sum(word.encode()) % 128] += 1
    return vector


alignment = Alignment.fit([see(one) for one in pictures], [read(one) for one in captions])
corpus = np.concatenate(
    [
        alignment.picture.aligned(np.stack([see(one) for one in pictures])),
        alignment.text.aligned(np.stack([read(one) for one in captions])),
    ],
    axis=1,
)


def search(picture: Floats, text: Floats, k: int) -> list[int]:
    """Your vector store."""
    asked = np.concatenate([alignment.picture.aligned(picture), alignment.text.aligned(text)])
    return [int(number) for number in np.argsort(-(corpus @ asked))[:k]]


with Cache(memory="64MiB") as cache:
    locator = Locator()
    retrieve = Retrieval(
        cache,
        picture=cache.wrap(see, modality="image", signature="see-1"),
        text=cache.wrap(read, modality="text", signature="read-1"),
        search=search,
        corpus="book 1",
        near=Tolerance(picture=0.95, text=0.8),
        alignment=alignment,
        check_share=0.0,
        locator=locator,
    )
    first = retrieve(pictures[7], "figure 7 of chapter 2", k=5)
    assert first[0] == 7
    assert retrieve(pictures[7], "figure 7 of chapter 2", k=5) == first  # the joint key
    smaller = pictures[7].resize((56, 56))
    assert retrieve(smaller, "chapter 2 figure 7 of", k=5) == first  # near in both gates
    print(retrieve.locate(pictures[9], "figure 7 of chapter 2", k=5))  # words known, picture not
    print(locator)

    retrieve.changed("book 2")  # nothing of book 1 is served any more
    print(f"refilled {retrieve.refresh()} queries without a model")
    assert retrieve.locate(pictures[7], "figure 7 of chapter 2", k=5).died is None
