"""What an engine's outputs depend on, and configurations that would be unsafe."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmcache.integrations import vllm
from mmcache.integrations.vllm.engine import adapter, check, sign
from mmcache.integrations.vllm.options import Options
from mmcache.model.errors import SettingsError, UnversionedModelError

SCHEDULER = "mmcache.integrations.vllm.MMCacheScheduler"
OPTIONS = Options(root="somewhere")


@dataclass
class Media:
    mm_processor_cache_gb: float = 0
    mm_processor_cache_type: str = "lru"
    limit_per_prompt: dict[str, int] = field(default_factory=dict)
    mm_processor_kwargs: dict[str, Any] | None = None
    video_pruning_rate: float | None = None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    (model / "preprocessor_config.json").write_text("{}")
    return model


def config(folder: Path, **changes: Any) -> Any:
    media = changes.pop("media", Media())
    model = {
        "model": str(folder), "revision": None, "dtype": "torch.bfloat16", "quantization": None,
        "hf_config": SimpleNamespace(hidden_size=7), "trust_remote_code": False, "multimodal_config": media,
    }  # fmt: skip
    model |= {name: changes.pop(name) for name in model if name in changes}
    return SimpleNamespace(
        model_config=SimpleNamespace(**model),
        parallel_config=SimpleNamespace(tensor_parallel_size=changes.pop("tp", 1)),
        load_config=SimpleNamespace(load_format=changes.pop("load_format", "auto")),
        scheduler_config=SimpleNamespace(scheduler_cls=changes.pop("scheduler", SCHEDULER)),
        lora_config=changes.pop("lora", None),
    )  # fmt: skip


def signed(folder: Path, options: Options = OPTIONS, **changes: Any) -> Any:
    engine, device = changes.pop("engine", "0.32"), changes.pop("device", "cpu")
    return sign(config(folder, **changes), options, engine=engine, device=device)


def test_equal_engines_share(folder: Path) -> None:
    assert signed(folder) == signed(folder, media=Media(limit_per_prompt={"image": 3}))
    assert signed(folder) == signed(folder, media=Media(mm_processor_cache_gb=4))


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "torch.float16"}, {"quantization": "fp8"}, {"tp": 2}, {"engine": "0.33"}, {"device": "cuda"},
        {"hf_config": SimpleNamespace(hidden_size=8)}, {"media": Media(mm_processor_kwargs={"do_resize": False})},
        {"media": Media(video_pruning_rate=0.5)},
    ],
)  # fmt: skip
def test_any_other_engine_does_not(folder: Path, changes: dict[str, Any]) -> None:
    assert signed(folder).digest != signed(folder, **changes).digest


def test_other_weights_or_another_processor_do_not(folder: Path) -> None:
    before = signed(folder).digest
    (folder / "preprocessor_config.json").write_text('{"do_resize": false}')
    processor = signed(folder).digest
    (folder / "model.safetensors").write_bytes(b"Weights")
    assert len({before, processor, signed(folder).digest}) == 3


def test_weights_that_nothing_identifies_need_a_version(folder: Path) -> None:
    with pytest.raises(UnversionedModelError):
        signed(folder, load_format="dummy")
    with pytest.raises(UnversionedModelError):
        signed(folder / "absent")
    one, two = (Options(root="somewhere", version=version) for version in ("1", "2"))
    assert signed(folder, one, load_format="dummy").digest != signed(folder, two, load_format="dummy").digest
    assert signed(folder, one).digest != signed(folder, one, revision="main").digest


def test_an_engine_that_would_believe_users_is_refused(folder: Path) -> None:
    check(config(folder), OPTIONS)
    trusting = Options(root="somewhere", uuids="trust")
    check(config(folder, media=Media(mm_processor_cache_gb=4)), trusting)
    for wrong, options in (
        (config(folder, scheduler=None), OPTIONS),
        (config(folder, scheduler=None), trusting),
        (config(folder, media=None), OPTIONS),
        (config(folder, media=Media(mm_processor_cache_gb=4)), OPTIONS),
        (config(folder, media=Media(mm_processor_cache_gb=4, mm_processor_cache_type="shm")), trusting),
    ):
        with pytest.raises(SettingsError):
            check(wrong, options)


def test_an_adapter_counts_by_its_files_and_only_where_it_reaches_the_encoder(tmp_path: Path) -> None:
    files = tmp_path / "adapter"
    files.mkdir()
    (files / "adapter_model.safetensors").write_bytes(b"one")
    request = SimpleNamespace(lora_path=str(files), lora_name="mine")
    tower = SimpleNamespace(lora_config=SimpleNamespace(enable_tower_connector_lora=True))
    language = SimpleNamespace(lora_config=SimpleNamespace(enable_tower_connector_lora=False))
    assert adapter(language, request) == adapter(tower, None) == ""
    first = adapter(tower, request)
    (files / "adapter_model.safetensors").write_bytes(b"two")
    assert first
    assert adapter(tower, request) not in (first, "", None)
    assert adapter(tower, SimpleNamespace(lora_path="org/elsewhere", lora_name="mine")) is None


@pytest.mark.parametrize(
    "extra",
    [
        {}, {"root": ""}, {"root": 7}, {"shared": "valkey://h:1"}, {"root": "r", "at_rest": "int8"},
        {"root": "r", "uuids": "yes"}, {"root": "r", "lookup_seconds": -1},
        {"root": "r", "lookup_seconds": float("nan")}, {"root": "r", "backlog_bytes": 0}, {"root": "r", "version": ""},
        {"root": "r", "tennant": "a"}, {"root": "r", "shared": "valkey://user:secret@host:1"},
    ],
)  # fmt: skip
def test_options_are_checked(extra: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        Options.of(extra)


def test_a_password_is_in_no_message() -> None:
    with pytest.raises(SettingsError) as found:
        Options.of({"root": "r", "shared": "valkey://user:secret@host:1"})
    assert "secret" not in str(found.value)


def test_options_by_name() -> None:
    assert Options.of({"root": "r", "shared": "valkey://h:1", "tenant": "a"}).tenant == "a"


def test_the_door_loads_nothing_of_vllm_by_itself() -> None:
    with pytest.raises(AttributeError):
        vllm.Unknown  # noqa: B018
    assert set(vllm.__all__) == {"MMCacheConnector", "MMCacheScheduler"}
