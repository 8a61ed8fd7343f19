"""One lookup's input: its content keys first, its embeddings only where they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcache.keys.joint import Floats
from mmcache.model.errors import InvalidInputError, MMCacheError, RetrievalError
from mmcache.model.key import Key
from mmcache.retrieval.locator import HopName, Trace

if TYPE_CHECKING:
    from mmcache.encoder import Encoder

_HOPS = HopName.PICTURE, HopName.TEXT


class Asked:
    """Picture and words of one lookup. Not shared between threads."""

    def __init__(
        self,
        encoders: tuple[Encoder, Encoder],
        sources: tuple[Any, str | None],
        trace: Trace | None,
        held: Callable[[Key], bool],
    ) -> None:
        self._encoders, self._sources, self._trace = encoders, sources, trace
        self._is_held = held
        keys: list[Key | None] = []
        for encoder, source, hop in zip(encoders, sources, _HOPS, strict=True):
            keys.append(None if source is None else encoder.key(source))
            if trace is not None:
                trace.mark(hop, "none given" if source is None else "known")
        self.keys = keys[0], keys[1]
        """Content keys; None where none was given."""
        self._vectors: tuple[Floats | None, Floats | None] | None = None
        self.held = [True, True]
        """Whether each embedding was in the cache; told only where a trace was wanted."""

    def vectors(self) -> tuple[Floats | None, Floats | None]:
        """float32 [d] each. Raises `RetrievalError` where a model fails, `InvalidInputError` for no vector."""
        if self._vectors is None:
            found = [self._embed(place) for place in (0, 1)]
            self._vectors = found[0], found[1]
        return self._vectors

    def _embed(self, place: int) -> Floats | None:
        encoder, source, key, hop = self._encoders[place], self._sources[place], self.keys[place], _HOPS[place]
        if source is None or key is None:
            return None
        if self._trace is not None:
            self.held[place] = self._is_held(key)
            self._trace.resume()
        try:
            vector = np.asarray(encoder(source), np.float32)
        except MMCacheError:
            raise
        except Exception as error:  # a model is a plug-in: whatever it raises, it is this hop's
            raise RetrievalError(
                hop.value, f"embedding the {hop.value} failed ({type(error).__name__}: {error}); the cause is chained"
            ) from error
        if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
            raise InvalidInputError(
                f"a retrieval needs one finite vector for the {hop.value}, but {encoder.__name__} gave an array of "
                f"shape {vector.shape}; pool its output"
            )
        if not isinstance(source, str | bytes) and encoder.key(source) != key:
            raise InvalidInputError("the picture was changed while it was looked up; do not write to an input")
        if self._trace is not None:
            self._trace.mark(hop, "held" if self.held[place] else "computed")
        vector = vector.view()
        vector.flags.writeable = False  # the store is handed what will be remembered
        return vector
