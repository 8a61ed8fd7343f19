"""The weights file: safetensors beside this code, float16; its header holds the vocabulary and how it was made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from mmcache.lab.models.vlm.decoder import Decoder, shapes
from mmcache.lab.models.vlm.words import Words
from mmcache.model.errors import AssetError

FILE = Path(__file__).with_name("vlm.safetensors")
TRAIN = "python -m mmcache.lab.models.vlm.train"


def save(path: Path, weights: Mapping[str, npt.NDArray[np.float16]], words: Words, heads: int, made: str) -> None:
    """`made`: data, licences, seed and steps, for who opens the file."""
    facts = {"vocabulary": json.dumps(words.pieces), "heads": str(heads), "made": made}
    save_file(dict(weights), path, metadata=facts)


def load(path: Path = FILE) -> tuple[Decoder, Words]:
    """Raises `AssetError` where the file is missing, or is not one that `save` wrote."""
    try:
        with safe_open(path, framework="numpy") as file:
            facts = file.metadata() or {}
            weights = {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}  # noqa: SIM118
        words, heads = Words(tuple(json.loads(facts["vocabulary"]))), int(facts["heads"])
        longest, width = weights["positions"].shape
        layers = sum(name.endswith(".cross.norm") for name in weights)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise AssetError(f"no usable weights in {path}: {error}; restore the file, or run `{TRAIN}`") from error
    wanted = shapes(len(words), layers, width, longest)
    if {name: value.shape for name, value in weights.items()} != wanted or width % heads:
        raise AssetError(f"{path} holds weights of another model; restore the file, or run `{TRAIN}`")
    return Decoder(weights, layers, heads), words


def digest(path: Path = FILE) -> str:
    """SHA-256 of the file, hex. Raises `AssetError`."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise AssetError(f"cannot read {path}: {error}; run `{TRAIN}`") from error
