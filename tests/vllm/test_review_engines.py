"""What must not reach the engine, nor be found: failures, weights and adapters that change, odd orders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed; `make test-vllm` runs these")

import torch
from tests.vllm.test_connector import Both, config, output, request
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole

from mmcache.integrations.vllm import MMCacheConnector
from mmcache.integrations.vllm import connector as module
from mmcache.integrations.vllm.identity import PRIVATE


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    monkeypatch.setattr(module, "_first", lambda: True)
    made = Both(config(tmp_path / "root"))
    yield made
    made.close()


def stored(both: Both, seed: int) -> None:
    assert both.ask(request(f"store-{seed}", seed), output(seed))
    both.worker.flush()
    both.evict()


@pytest.mark.parametrize("error", [ValueError("odd bytes"), KeyError("x"), RuntimeError("no memory"), MemoryError()])
def test_whatever_a_lookup_raises_is_a_miss(both: Both, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken(*_: Any) -> None:
        raise error

    stored(both, 1)
    monkeypatch.setattr(both.scheduler._cache, "get", broken)
    assert both.ask(request("2", 1), output(1))


def test_an_item_that_cannot_be_read_is_encoded_and_shared_with_nobody(both: Both) -> None:
    def broken() -> Any:
        raise RuntimeError("on a device that is gone")

    wanted = request("1", 1)
    wanted.mm_features[0].data = SimpleNamespace(get_data=broken)
    (name,) = both.admit(wanted)
    assert name.startswith(PRIVATE)
    assert both.step(wanted, {name: output(1)})
    assert both.scheduler.take_unavailable_requests() == set(), "there is something to encode"


def test_whatever_storing_raises_ends_nothing(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = both.worker._cache.answers.keep

    def broken(*_: Any, **__: Any) -> None:
        raise TypeError("odd value")

    monkeypatch.setattr(both.worker._cache.answers, "keep", broken)
    both.ask(request("1", 1), output(1))
    both.worker.flush()
    monkeypatch.setattr(both.worker._cache.answers, "keep", keep)
    stored(both, 2)
    assert not both.ask(request("3", 2), output(0))


def test_weights_loaded_anew_behind_the_schedulers_back(both: Both) -> None:
    """`collective_rpc("reload_weights")` clears the worker's cache and tells the scheduler nothing."""
    stored(both, 1)
    both.cache.clear()
    both.ask(request("2", 2), output(9))  # by the new weights, under an old name: not to be stored
    both.worker.flush()
    told = both.worker.build_connector_worker_meta()
    assert told is not None
    assert told.cleared
    both.scheduler.update_connector_output(SimpleNamespace(ec_connector_worker_meta=told.aggregate(module.Told({}))))
    both.evict()
    assert both.ask(request("3", 1), output(5)), "what the old weights made is not found"
    both.worker.flush()
    both.evict()
    again = request("4", 1)
    assert not both.ask(again, output(0))
    assert torch.equal(both.cache[again.mm_features[0].identifier], output(5))
    fresh = MMCacheConnector(both.scheduler._config, ECConnectorRole.SCHEDULER)
    for seed, there in ((1, True), (2, False)):
        other = request("5", seed)
        fresh.admit(other)
        assert fresh.has_cache_item(other.mm_features[0].identifier) is there
    fresh.shutdown()


def test_a_reset_that_the_scheduler_knows_of_counts_once(both: Both) -> None:
    stored(both, 1)
    both.scheduler.weights_changed()
    both.cache.clear()
    both.ask(request("2", 1), output(2))
    both.worker.flush()
    told = both.worker.build_connector_worker_meta()
    assert told is not None
    assert not told.cleared
    both.evict()
    again = request("3", 1)
    assert not both.ask(again, output(0))
    assert torch.equal(both.cache[again.mm_features[0].identifier], output(2))


def test_an_adapter_whose_files_changed_is_shared_no_more(both: Both, tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(b"one")
    both.scheduler._config.lora_config = SimpleNamespace(enable_tower_connector_lora=True)

    def named(place: bool = False) -> str:
        wanted = request("1", 1)
        wanted.lora_request = SimpleNamespace(
            lora_int_id=1, lora_name="a", lora_path=str(folder), load_inplace=place
        )  # fmt: skip
        return both.admit(wanted)[0]

    first = named()
    assert named() == first
    assert first != both.admit(request("2", 1))[0]
    (folder / "adapter_model.safetensors").write_bytes(b"other")
    assert named().startswith(PRIVATE), "the engine may have either"
    again = named(place=True)
    assert again != first
    assert not again.startswith(PRIVATE)
    assert named() == again


def test_one_picture_twice_in_a_step_and_after_preemption(both: Both) -> None:
    stored(both, 1)
    wanted = request("2", 1, 1)
    names = both.admit(wanted)
    assert names[0] == names[1]
    assert both.scheduler.has_cache_item(names[0])
    assert both.scheduler.has_cache_item(names[0])
    both.scheduler.update_state_after_alloc(wanted, 0)  # the other is a duplicate, of which the engine tells nobody
    assert len(both.scheduler.build_connector_meta(None).loads) == 1
    assert both.scheduler.has_cache_item(names[0]), "preempted, dropped by the engine, wanted again"
    both.scheduler.update_state_after_alloc(wanted, 0)
    both.worker.bind_connector_metadata(both.scheduler.build_connector_meta(None))
    both.worker.start_load_caches(both.cache)
    assert torch.equal(both.cache[names[0]], output(1))
    both.scheduler.request_finished(wanted)
    assert len(both.scheduler._leases) == 0


def test_an_empty_salt_is_none_and_a_salt_is_no_tenants_name(both: Both, tmp_path: Path) -> None:
    plain = both.admit(request("1", 1))[0]
    assert both.admit(request("2", 1, salt=""))[0] == plain
    salted = both.admit(request("3", 1, salt="default"))[0]
    other = Both(config(tmp_path / "root", tenant="default+default"))
    assert len({plain, salted, other.admit(request("4", 1))[0], both.admit(request("5", 1, salt="\ud800"))[0]}) == 4
    other.close()


def test_damage_in_a_file_is_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_first", lambda: True)
    made = Both(config(tmp_path))
    made.ask(request("1", 1), output(1))
    made.close()
    for path in (tmp_path / "segments").iterdir():
        raw = bytearray(path.read_bytes())
        start = raw.find(output(1).view(torch.int16).numpy().tobytes()[:32])
        assert start > 0
        raw[start + 40] ^= 1
        path.write_bytes(raw)
    made = Both(config(tmp_path))
    assert made.ask(request("2", 1), output(1))
    made.close()
