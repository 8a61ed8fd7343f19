"""A `LifeModel` in one safetensors file."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from mmcache.lifespan.inputs import LifeScale
from mmcache.lifespan.model import Calibration, LifeModel
from mmcache.model.errors import CorruptFrameError, FormatVersionError, InvalidInputError, SettingsError

FORMAT, VERSION = "mmcache-lifetime", 1
MOST_BYTES = 64 << 20
_ADVICE = "train one with `mmcache learn lifetime`"


def save(model: LifeModel, path: str | os.PathLike[str]) -> None:
    """Write `path`, replacing it at once when complete. Raises `SettingsError`."""
    from safetensors.numpy import save as packed

    tensors: dict[str, Any] = {f"weights.{name}": array for name, array in model.weights.items()}
    tensors |= {f"baseline.{name}": counts for name, counts in model.baseline.items()}
    tensors |= {"calibration.logits": model.calibration.logits, "calibration.shares": model.calibration.shares}
    tensors |= {"text_groups": model.text_groups, "image_groups": model.image_groups}
    scale = {name: getattr(model.scale, name) for name in LifeScale.__dataclass_fields__}
    facts = {
        "format": FORMAT,
        "version": str(VERSION),
        "scale": json.dumps(scale),
        "tolerances": json.dumps(dict(model.tolerances)),
        "notes": json.dumps(dict(model.notes)),
    }
    data = packed({name: np.ascontiguousarray(array) for name, array in tensors.items()}, facts)
    target = Path(path)
    draft = ""
    try:
        descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with open(descriptor, "wb") as page:
            page.write(data)
        os.replace(draft, target)
    except OSError as error:
        raise SettingsError(f"cannot write {target}: {error.strerror}") from error
    finally:
        if draft:
            with suppress(FileNotFoundError):
                os.unlink(draft)


def load(path: str | os.PathLike[str]) -> LifeModel:
    """Read and check one.

    Raises `SettingsError` where there is no such file, `FormatVersionError` for one of a newer version,
    `CorruptFrameError` for anything that is no sound model.
    """
    from safetensors import SafetensorError, safe_open

    source = Path(path)
    try:
        size = source.stat().st_size
    except OSError as error:
        raise SettingsError(f"cannot read the model {source}: {error.strerror}; {_ADVICE}") from error
    if size > MOST_BYTES:
        raise CorruptFrameError(f"{source} has {size} bytes, too many for a model of lifetimes")
    try:
        with safe_open(source, framework="numpy") as file:
            facts = file.metadata() or {}
            if facts.get("format") != FORMAT:
                raise CorruptFrameError(f"{source} is a safetensors file, but no model of lifetimes; {_ADVICE}")
            if (version := int(facts["version"])) > VERSION:
                raise FormatVersionError(
                    f"{source} is of version {version}, this mmcache reads {VERSION}: update mmcache"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        scale = json.loads(facts["scale"])
        scale["horizons"] = tuple(scale["horizons"])
        parts = {
            kind: {name.partition(".")[2]: array for name, array in tensors.items() if name.startswith(f"{kind}.")}
            for kind in ("weights", "baseline")
        }
        tolerances = {str(name): float(nats) for name, nats in json.loads(facts["tolerances"]).items()}
        notes = {str(name): str(note) for name, note in json.loads(facts["notes"]).items()}
        calibration = Calibration(tensors["calibration.logits"], tensors["calibration.shares"])
        return LifeModel(
            LifeScale(**scale), parts["weights"], calibration, tensors["text_groups"], tensors["image_groups"],
            parts["baseline"], tolerances, notes,
        )  # fmt: skip
    except (SafetensorError, LookupError, ValueError, AttributeError, TypeError, OSError, RecursionError) as error:
        raise CorruptFrameError(f"{source} is no sound model of lifetimes: {error}; train it again") from error
    except InvalidInputError as error:
        raise CorruptFrameError(f"{source} is no sound model of lifetimes: {error}; train it again") from error
