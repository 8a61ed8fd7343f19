"""Which code a tower runs, where its classes' names do not say it: patched `forward`s, attention of one's own."""

from __future__ import annotations

import functools
import json
from types import FunctionType
from typing import Any

from blake3 import blake3
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from mmcache.integrations.transformers.swap import plain_class
from mmcache.keys.signing.facts import Facts
from mmcache.keys.tensor import flat_bytes
from mmcache.model.signature import Signature

_HEX = 32


def code_of(tower: nn.Module) -> str:
    """Digest of every class's `forward`, as it is now: through its wrappers, with what they close over.

    Raises `UnversionedModelError` for what is nested without end."""
    kinds = set(map(plain_class, tower.modules()))
    told = sorted(f"{kind.__module__}.{kind.__qualname__} {_digest(kind.forward)}" for kind in kinds)
    return blake3("\n".join(told).encode()).hexdigest()[:_HEX]


def attention(tower: nn.Module) -> str:
    """How attention is computed: its name, and the code of a function that somebody registered under it."""
    name = str(getattr(getattr(tower, "config", None), "_attn_implementation", None) or "")
    found = ALL_ATTENTION_FUNCTIONS.get(name) if name else None
    if found is None or _of_transformers(found):
        return name
    return f"{name} {_registered(found)}"


def _of_transformers(function: Any) -> bool:
    return type(function) is FunctionType and function.__module__.startswith("transformers.integrations.")


@functools.lru_cache(maxsize=64)
def _registered(function: Any) -> str:
    return _digest(function)


def _digest(function: Any) -> str:
    facts = Facts({}, lambda module: Signature.of(module).digest.hex(), _tensor)
    return blake3(json.dumps(facts.plain(function), sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()[:_HEX]


def _tensor(tensor: Any) -> str:
    return blake3(flat_bytes(tensor.detach()).data).hexdigest()
