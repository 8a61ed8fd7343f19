"""Both ends of the connector with vLLM's own types, without an engine: what reaches the worker, and as what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed; `make test-vllm` runs these")

import torch
from vllm.config.ec_transfer import ECTransferConfig
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole
from vllm.multimodal.inputs import (
    MultiModalFeatureSpec,
    MultiModalFieldElem,
    MultiModalKwargsItem,
    MultiModalSharedField,
    PlaceholderRange,
)

from mmcache.integrations.vllm import MMCacheConnector, caches
from mmcache.integrations.vllm import connector as module
from mmcache.integrations.vllm.identity import PRIVATE, key_of
from mmcache.model.errors import SettingsError

ROWS, WIDTH = 8, 16


def config(root: Path, **extra: Any) -> Any:
    transfer = ECTransferConfig(
        ec_connector="MMCacheConnector", ec_role=extra.pop("role", "ec_both"),
        ec_connector_extra_config={"root": str(root), "version": "1", **extra},
    )  # fmt: skip
    media = SimpleNamespace(mm_processor_cache_gb=0, mm_processor_cache_type="lru")
    return SimpleNamespace(
        ec_transfer_config=transfer,
        model_config=SimpleNamespace(
            model="little", revision=None, dtype=torch.bfloat16, quantization=None, multimodal_config=media,
            hf_config=SimpleNamespace(width=WIDTH), trust_remote_code=False,
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=1),
        load_config=SimpleNamespace(load_format="dummy"),
        scheduler_config=SimpleNamespace(scheduler_cls="mmcache.integrations.vllm.MMCacheScheduler"),
        lora_config=None,
    )  # fmt: skip


def request(name: str, *seeds: int | None, salt: str | None = None, uuid: str = "A", rows: int = ROWS) -> Any:
    features = [feature(seed, uuid, place, rows) for place, seed in enumerate(seeds)]
    return SimpleNamespace(
        request_id=name, mm_features=features, cache_salt=salt, lora_request=None,
        get_num_encoder_embeds=lambda index: features[index].mm_position.get_num_embeds(),
    )  # fmt: skip


def feature(seed: int | None, uuid: str, place: int, rows: int) -> MultiModalFeatureSpec:
    data = None
    if seed is not None:
        pixels = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(seed))
        field = MultiModalSharedField(batch_size=1)
        grid = MultiModalFieldElem(data=torch.tensor([1, 2, 4]), field=field)
        data = MultiModalKwargsItem({"pixels": MultiModalFieldElem(data=pixels, field=field), "grid_thw": grid})
    return MultiModalFeatureSpec(
        data=data, modality="image", identifier=uuid, mm_position=PlaceholderRange(offset=place * rows, length=rows),
        mm_hash=uuid,
    )  # fmt: skip


def output(seed: int) -> torch.Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


class Both:
    """Scheduler and worker, stepped by hand as the engine does."""

    def __init__(self, settings: Any) -> None:
        self.scheduler = MMCacheConnector(settings, ECConnectorRole.SCHEDULER)
        self.worker = MMCacheConnector(settings, ECConnectorRole.WORKER)
        self.cache: dict[str, torch.Tensor] = {}

    def admit(self, wanted: Any) -> list[str]:
        self.scheduler.admit(wanted)
        return [item.identifier for item in wanted.mm_features]

    def step(self, wanted: Any, encode: dict[str, torch.Tensor]) -> list[str]:
        """Which items were encoded."""
        assert self.scheduler.ensure_cache_available(wanted, 0)
        names = [item.identifier for item in wanted.mm_features]
        found = [self.scheduler.has_cache_item(name) for name in names]
        for place in range(len(names)):
            self.scheduler.update_state_after_alloc(wanted, place)
        self.worker.bind_connector_metadata(self.scheduler.build_connector_meta(None))
        self.worker.start_save_caches(encoder_cache=self.cache)
        self.worker.start_load_caches(self.cache)
        encoded = [name for name, there in zip(names, found, strict=True) if not there]
        for name in encoded:
            self.cache[name] = encode[name]
            self.worker.save_caches(self.cache, name)
        self.worker.clear_connector_metadata()
        self.scheduler.request_finished(wanted)
        return encoded

    def ask(self, wanted: Any, *outputs: torch.Tensor) -> list[str]:
        names = self.admit(wanted)
        return self.step(wanted, dict(zip(names, outputs, strict=True)))

    def evict(self) -> None:
        """As the engine does, which pops what it drops."""
        for name in [name for name in self.cache if name != module.MARK]:
            del self.cache[name]

    def close(self) -> None:
        self.worker.flush()
        self.scheduler.shutdown()
        self.worker.shutdown()


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    monkeypatch.setattr(module, "_first", lambda: True)
    made = Both(config(tmp_path / "root"))
    yield made
    made.close()
    assert not caches._open


def test_an_output_is_found_by_content_whatever_it_is_called(both: Both) -> None:
    assert both.ask(request("1", 7, uuid="A"), output(7))
    both.worker.flush()
    both.evict()
    again = request("2", 7, uuid="../outside")
    assert not both.ask(again, output(0))
    assert torch.equal(both.cache[again.mm_features[0].identifier], output(7))


def test_another_picture_under_the_same_uuid_is_another(both: Both) -> None:
    names = [both.admit(request(str(seed), seed, uuid="A"))[0] for seed in (1, 2)]
    assert len({*names, "A"}) == 3


def test_tenants_do_not_share(both: Both) -> None:
    names = {both.admit(request(str(salt), 1, salt=salt))[0] for salt in (None, "a", "b")}
    assert len(names) == 3
    assert both.ask(request("x", 1, salt="a"), output(1))
    both.worker.flush()
    assert both.ask(request("y", 1, salt="b"), output(1))
    assert not both.ask(request("z", 1, salt="a"), output(1))


def test_what_was_said_to_exist_is_loaded_though_it_has_gone_since(both: Both) -> None:
    both.ask(request("1", 1), output(1))
    both.worker.flush()
    both.evict()
    wanted = request("2", 1)
    (name,) = both.admit(wanted)
    assert both.scheduler.has_cache_item(name)
    key = key_of(name)
    assert key is not None
    assert both.scheduler._cache.invalidate(key) >= 1
    both.scheduler.update_state_after_alloc(wanted, 0)
    both.worker.bind_connector_metadata(both.scheduler.build_connector_meta(None))
    both.worker.start_load_caches(both.cache)
    assert torch.equal(both.cache[name], output(1))
    both.scheduler.request_finished(wanted)
    assert both.ask(request("3", 1), output(1))  # and is a miss for the next


def test_a_placeholder_of_another_size_is_a_miss(both: Both) -> None:
    both.ask(request("1", 1), output(1))
    both.worker.flush()
    wanted = request("2", 1, rows=ROWS + 1)
    (name,) = both.admit(wanted)
    assert not both.scheduler.has_cache_item(name)


def test_an_output_that_is_not_what_was_expected_is_not_stored(both: Both) -> None:
    both.ask(request("1", 1), output(1)[:-1])
    both.worker.flush()
    assert both.ask(request("2", 1), output(1))


def test_a_uuid_without_its_body_fails_that_request_only(both: Both) -> None:
    both.ask(request("1", 1, uuid="A"), output(1))
    both.worker.flush()
    wanted = request("2", None, uuid="A")
    (name,) = both.admit(wanted)
    assert name.startswith(PRIVATE)
    assert not both.scheduler.has_cache_item(name)
    assert not both.scheduler.ensure_cache_available(wanted, 0)  # never scheduled: nobody could encode it
    assert both.scheduler.take_unavailable_requests() == {"2"}
    assert both.scheduler.take_unavailable_requests() == set()
    assert not both.ask(request("3", 1), output(1))


def test_new_weights_find_nothing_and_leave_nothing_under_old_names(both: Both) -> None:
    both.ask(request("1", 1), output(1))
    both.worker.flush()
    wanted = request("2", 2)
    (old,) = both.admit(wanted)
    both.scheduler.weights_changed()
    both.step(wanted, {old: output(3)})  # encoded with the new weights
    both.worker.flush()
    assert both.ask(request("3", 1), output(4))
    fresh = MMCacheConnector(both.scheduler._config, ECConnectorRole.SCHEDULER)
    other = request("4", 2)
    fresh.admit(other)
    assert not fresh.has_cache_item(other.mm_features[0].identifier)
    fresh.shutdown()


def test_roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_first", lambda: True)
    for role, seed in (("ec_consumer", 1), ("ec_producer", 2), ("ec_both", 2)):
        made = Both(config(tmp_path, role=role))
        encoded = made.ask(request("1", seed), output(seed))
        made.close()
        assert bool(encoded) == (role != "ec_both")


def test_only_one_of_equal_workers_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_first", lambda: False)
    made = Both(config(tmp_path))
    made.ask(request("1", 1), output(1))
    made.close()
    made = Both(config(tmp_path))
    assert made.ask(request("1", 1), output(1))
    made.close()


def test_counts(both: Both) -> None:
    both.ask(request("1", 1), output(1))
    both.worker.flush()
    both.ask(request("2", 1), output(1))
    told = both.worker.build_connector_worker_meta()
    assert told is not None
    both.scheduler.update_connector_output(SimpleNamespace(ec_connector_worker_meta=told))
    found = both.scheduler.get_ec_connector_stats()
    assert found is not None
    assert found.data == {"misses": 1, "hits": 1, "stored": 1, "loaded_bytes": ROWS * WIDTH * 2}
    received = MMCacheConnector.build_ec_connector_stats(found.data)
    assert received is not None
    assert received.aggregate(found).data["hits"] == 2
    assert both.scheduler.get_ec_connector_stats() is None


def test_a_lost_store_is_a_miss(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> None:
        raise OSError("the disk is gone")

    both.ask(request("1", 1), output(1))
    both.worker.flush()
    monkeypatch.setattr(both.scheduler._cache, "get", lost)
    assert both.ask(request("2", 1), output(1))


def test_a_configuration_that_believes_users_is_refused(tmp_path: Path) -> None:
    unsafe = config(tmp_path)
    unsafe.model_config.multimodal_config.mm_processor_cache_gb = 4
    with pytest.raises(SettingsError, match="--mm-processor-cache-gb 0"):
        MMCacheConnector(unsafe, ECConnectorRole.SCHEDULER)
