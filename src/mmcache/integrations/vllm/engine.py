"""What of an engine's configuration its encoder outputs depend on, and what of it would make them unsafe to share.

Reads `VllmConfig` by attribute and imports nothing of vLLM: everything here is tested without it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blake3 import blake3

from mmcache.integrations.vllm.options import Options
from mmcache.keys.signing.files import describe_path
from mmcache.model.errors import InvalidInputError, SettingsError, UnversionedModelError
from mmcache.model.signature import Signature

FLAGS = "--mm-processor-cache-gb 0 --scheduler-cls mmcache.integrations.vllm.MMCacheScheduler"
IRRELEVANT = frozenset({
    "limit_per_prompt", "mm_processor_cache_gb", "mm_processor_cache_type", "mm_shm_cache_max_object_size_mb",
    "mm_hasher_algorithm", "mm_tensor_ipc", "skip_mm_profiling", "interleave_mm_strings", "enable_mm_embeds",
    "allow_missing_mm_embeddings", "language_model_only",
})  # fmt: skip
"""Fields of `MultiModalConfig` that change no output. One that is not known here counts: it can only cost misses."""


def check(config: Any, options: Options) -> None:
    """Raises `SettingsError` where an item's content would not reach us, or its name not the engine's own caches."""
    if str(getattr(config.scheduler_config, "scheduler_cls", None)).rpartition(".")[2] != "MMCacheScheduler":
        raise SettingsError(
            "vLLM names pictures by what the user says (uuid) and forgets whose they are (cache_salt), in its prefix "
            f"cache and encoder cache too; our scheduler names them by content and tenant. Start it with: {FLAGS}"
        )
    media = config.model_config.multimodal_config
    if media is None:
        raise SettingsError("this model takes no pictures, sounds or videos: it has no encoder outputs to cache")
    if not media.mm_processor_cache_gb:
        return
    if options.uuids == "verify":
        raise SettingsError(
            "vLLM's processor cache believes a user's uuid: another picture under the same one would be answered with "
            f'the first. Start it with: {FLAGS} (or say "uuids": "trust" where only a trusted proxy sets them)'
        )
    if media.mm_processor_cache_type == "shm":
        raise SettingsError("with --mm-processor-cache-type shm the scheduler sees no content; use lru, or no cache")


def sign(config: Any, options: Options, *, engine: str, device: str) -> Signature:
    """The signature of this engine's encoder, before any LoRA. `engine`: vLLM's version; `device`: its kind.

    Raises `UnversionedModelError` where nothing identifies the weights, `InvalidInputError` for unreadable ones.
    """
    model, parallel = config.model_config, config.parallel_config
    media = model.multimodal_config
    relevant = {name: value for name, value in _fields(media).items() if name not in IRRELEVANT}
    parts = {
        "media": relevant,
        "model": _config(model.hf_config),
        "processor": _processor(model),
        "trust_remote_code": model.trust_remote_code,
        "code": str(getattr(model, "model_impl", "")),
    }
    return Signature(
        model_version=_weights(config, options),
        preprocess=blake3(_json(parts)).hexdigest()[:32],
        dtype=str(model.dtype).removeprefix("torch."),
        quantisation=str(model.quantization or ""),
        device=f"{device} tp{parallel.tensor_parallel_size}",
        function=f"vllm-{engine} encoder",
    )


def _weights(config: Any, options: Options) -> str:
    """Model, revision and weights. The user's version stands for the last of them."""
    model = config.model_config
    name = f"{model.model} {model.revision or ''}".strip()
    if options.version is not None:
        return f"{name} version {options.version}"
    form = str(getattr(config.load_config.load_format, "value", config.load_config.load_format))
    if form == "dummy":
        raise UnversionedModelError('weights of load_format "dummy" are in no file; give them a "version"')
    return describe_path(_folder(model)).model_version


def _folder(model: Any) -> Path:
    """Where the weights are on this machine."""
    path = Path(model.model).expanduser()
    if path.exists():
        return path
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

        try:
            return Path(snapshot_download(model.model, revision=model.revision, local_files_only=True))
        except (LocalEntryNotFoundError, HFValidationError) as error:
            raise UnversionedModelError(f'cannot find the weights of {model.model}; give them a "version"') from error
    except ImportError as error:
        raise UnversionedModelError(f'cannot find the weights of {model.model}; give them a "version"') from error


def _processor(model: Any) -> dict[str, str]:
    """The processor's configuration files, by name."""
    try:
        folder = _folder(model)
    except UnversionedModelError:
        return {}
    names = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
    found = {}
    for name in names:
        try:
            found[name] = blake3((folder / name).read_bytes()).hexdigest()[:32]
        except OSError:
            continue
    return found


def _fields(config: Any) -> Mapping[str, Any]:
    if dataclasses.is_dataclass(config):
        return {field.name: getattr(config, field.name, None) for field in dataclasses.fields(config)}
    return dict(vars(config))


def _config(config: Any) -> Any:
    return config.to_dict() if hasattr(config, "to_dict") else _fields(config)


def _json(parts: Any) -> bytes:
    return json.dumps(parts, sort_keys=True, default=str).encode()


def adapter(config: Any, request: Any) -> str | None:
    """What the LoRA of a request does to the encoder: "" = nothing; None = it cannot be told, so do not share.

    Adapters reach encoders only with `enable_tower_connector_lora`; there their files are digested, not their name.
    """
    if request is None or config.lora_config is None:
        return ""
    if not getattr(config.lora_config, "enable_tower_connector_lora", False):
        return ""
    path = Path(request.lora_path).expanduser()
    try:
        return describe_path(path).model_version if path.is_dir() else None
    except (InvalidInputError, UnversionedModelError):
        return None
