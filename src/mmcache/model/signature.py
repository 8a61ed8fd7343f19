"""`Signature`: everything besides the input that a model's output depends on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import ClassVar

from blake3 import blake3

from mmcache.model.errors import UnversionedModelError


@dataclass(frozen=True)
class Signature:
    """What an artifact depends on; two artifacts with different signatures never meet.

    Only the digest enters keys. Empty fields mean "does not apply".
    """

    schema_hash: str = ""
    """SHA-256 (hex) of the canonical OpenAPI description of input and output."""
    model_version: str = ""
    """Semantic version and weights revision: a hub commit, or the digest of the weights."""
    preprocess: str = ""
    tokenizer: str = ""
    dtype: str = ""
    decoder: str = ""
    """Name and version of the media decoder, e.g. `pillow-13.0.0`."""
    lora: str = ""
    quantisation: str = ""
    device: str = ""
    """Device class, where outputs differ by it."""
    function: str = ""
    """Module and name of the callable, where only a plain version string was given: two functions never share."""
    modality: str = ""
    """What kind of input: equal bytes of different modalities never share."""
    storage: str = ""
    """The lossy codec chain at rest, if any: a lossless reader never gets a lossy block."""

    describe: ClassVar[Callable[..., Signature] | None] = None
    """Set by `mmcache`: turns a model into its signature (see `keys.signing`)."""

    @cached_property
    def digest(self) -> bytes:
        """16 bytes: BLAKE3 of the canonical JSON of all fields."""
        return blake3(json.dumps(asdict(self), sort_keys=True).encode()).digest(length=16)

    @staticmethod
    def of(model: object, *, version: str | None = None, **fields: str) -> Signature:
        """The signature of a torch module, transformers model or processor, ONNX file, or callable.

        `version` is needed for a plain callable. `fields` set or override single fields.
        Raises `UnversionedModelError` where nothing identifies the weights.
        """
        if isinstance(model, Signature):
            return model
        if isinstance(model, str) and version is None:
            return Signature(model_version=model, **fields)
        if Signature.describe is None:
            raise UnversionedModelError("import mmcache before Signature.of(), or pass a plain version string")
        return Signature.describe(model, version=version, **fields)
