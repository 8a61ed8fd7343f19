"""Signatures of what prepares inputs: transformers processors and tokenizers, and bare `tokenizers.Tokenizer`s."""

from __future__ import annotations

import json
from typing import Any

from blake3 import blake3

from mmcache.keys.signing.facts import VOLATILE
from mmcache.model.signature import Signature

_CALL_STATE = ("truncation", "padding")
"""What a transformers tokenizer writes into its backend at each call."""
_TOKENIZER_FACTS = (
    "padding_side", "truncation_side", "model_max_length", "chat_template", "special_tokens_map",
    "clean_up_tokenization_spaces", "add_bos_token", "add_eos_token", "model_input_names",
)  # fmt: skip


def _family(thing: Any) -> set[str]:
    return {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(thing).__mro__}


def _is_tokenizer(thing: Any) -> bool:
    return bool(_family(thing) & {"transformers.PreTrainedTokenizerBase", "tokenizers.Tokenizer"})


def is_processor(thing: Any) -> bool:
    """Whether it is a processor, an image processor, a feature extractor or a tokenizer."""
    kinds = {"transformers.ProcessorMixin", "transformers.ImageProcessingMixin", "transformers.FeatureExtractionMixin"}
    return _is_tokenizer(thing) or bool(_family(thing) & kinds)


def describe_processor(thing: Any) -> Signature:
    """Its configuration by content: `preprocess` and `tokenizer`; a processor's parts count."""
    if _is_tokenizer(thing):
        return Signature(tokenizer=_tokenizer(thing))
    parts = [value for _, value in sorted(vars(thing).items()) if is_processor(value)]
    tokenizers = [_tokenizer(part) for part in parts if _is_tokenizer(part)]
    others = [_digest(thing, _own_config(thing))]
    others += [_digest(part, _own_config(part)) for part in parts if not _is_tokenizer(part)]
    return Signature(preprocess=" + ".join(others), tokenizer=" + ".join(tokenizers))


def _own_config(thing: Any) -> dict[str, Any]:
    if "transformers.ProcessorMixin" in _family(thing):  # its parts are digested by themselves
        return {name: value for name, value in vars(thing).items() if not is_processor(value)}
    config: dict[str, Any] = thing.to_dict()
    return config


def _tokenizer(thing: Any) -> str:
    if hasattr(thing, "to_str"):  # tokenizers.Tokenizer
        return _digest(thing, json.loads(thing.to_str()))
    facts: dict[str, Any] = {name: getattr(thing, name, None) for name in _TOKENIZER_FACTS}
    backend = getattr(thing, "backend_tokenizer", None)
    if backend is not None:
        facts["backend"] = {k: v for k, v in json.loads(backend.to_str()).items() if k not in _CALL_STATE}
    else:
        facts["vocabulary"] = thing.get_vocab()
        facts["settings"] = thing.init_kwargs
        files = {name: value for name, value in vars(thing).items() if isinstance(value, str | int | float | bool)}
        facts["attributes"] = {name: value for name, value in files.items() if not name.endswith("_file")}
    return _digest(thing, facts)


def _digest(thing: Any, facts: Any) -> str:
    text = json.dumps(_stripped(facts), sort_keys=True, default=_named)
    return f"{type(thing).__qualname__}-{blake3(text.encode()).hexdigest()[:32]}"


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _stripped(item) for key, item in value.items() if key not in VOLATILE}
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_stripped(item), sort_keys=True, default=_named) for item in value)
    return [_stripped(item) for item in value] if isinstance(value, list | tuple) else value


def _named(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "tolist"):
        return json.dumps(value.tolist())
    # Never repr: addresses in it would make every process another signature.
    return str(value) if "__str__" in vars(type(value)) else type(value).__qualname__
