"""`MMCacheConnector`: vLLM's two ends of the cache, in the scheduler and in the worker.

Scheduler: names items by content and tenant as requests arrive (`admit`), says which outputs exist, and hands them
over with the step that needs them. Worker: puts what was handed over into the engine's own cache, and stores what it
encodes. A failure in here is a miss: the picture is encoded.
"""

from __future__ import annotations

import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from vllm import __version__ as vllm_version
from vllm.distributed.ec_transfer.ec_connector.base import (
    ECConnectorBase,
    ECConnectorMetadata,
    ECConnectorRole,
    ECConnectorWorkerMetadata,
)
from vllm.logger import init_logger
from vllm.platforms import current_platform

from mmcache.integrations.vllm import caches, engine, identity, outputs
from mmcache.integrations.vllm.counters import MMCacheMetrics, MMCacheStats
from mmcache.integrations.vllm.leases import Facts, Handover, Leases
from mmcache.integrations.vllm.options import Options
from mmcache.integrations.vllm.saving import Saved, Saving
from mmcache.model.errors import InvalidInputError
from mmcache.model.key import Key

logger = init_logger(__name__)

LOOKUP_THREADS = 8
MARK = f"{identity.PRIVATE}mark"
"""Lies in a worker's encoder cache from its first step on. It is gone when somebody has cleared that: new weights."""


@dataclass
class Step(ECConnectorMetadata):  # type: ignore[misc]
    """What the scheduler tells the worker of one step."""

    loads: list[Handover] = field(default_factory=list)
    saves: dict[str, Facts] = field(default_factory=dict)
    generation: int = 0
    """How often the weights had changed, as far as the scheduler knew."""


@dataclass
class Told(ECConnectorWorkerMetadata):  # type: ignore[misc]
    """What a worker tells the scheduler: its counts, and whether its weights may be others now."""

    counts: dict[str, int]
    cleared: bool = False

    def aggregate(self, other: Told) -> Told:
        """The sum of two workers'."""
        names = self.counts | other.counts
        sums = {name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in names}
        return Told(sums, self.cleared or other.cleared)


class MMCacheConnector(ECConnectorBase):  # type: ignore[misc]
    """Made by vLLM, once a role. Raises `SettingsError` or `UnversionedModelError` where its answers could be wrong."""

    def __init__(self, vllm_config: Any, role: ECConnectorRole) -> None:
        super().__init__(vllm_config=vllm_config, role=role)
        self._options = Options.of(vllm_config.ec_transfer_config.ec_connector_extra_config)
        engine.check(vllm_config, self._options)
        self._config = vllm_config
        self._stats, self._lock = MMCacheStats(), threading.Lock()
        self._cache = caches.acquire(self._options)
        self._open = True
        self._step = Step()
        self._generation = 0
        self._saving: Saving | None = None
        self._executor: ThreadPoolExecutor | None = None
        if role == ECConnectorRole.SCHEDULER:
            self._signature = engine.sign(
                vllm_config, self._options, engine=vllm_version, device=current_platform.device_type
            )
            if self._options.shared is not None:
                self._executor = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="mmcache-vllm-lookup")
            self._leases = Leases(self._find, self._executor, self._options.lookup_seconds)
            self._lacking: set[str] = set()
            self._adapters: dict[tuple[int, str, str], str | None] = {}
        else:
            self._marked = self._cleared = self._stale = False
            if self.is_producer:
                self._saving = Saving(self._store, self._options.backlog_bytes)
                self._began = time.perf_counter()

    # Scheduler: who is it -------------------------------------------------------------------------------------------

    def admit(self, request: Any) -> None:
        """Give each of a request's items its name: key of content, tenant, signature. Before anything else sees them.

        `MMCacheScheduler` calls it. An item that cannot be identified gets a name of its own and is shared with nobody.
        """
        for index, item in enumerate(request.mm_features):
            item.identifier = self._name(request, index, item)

    def _name(self, request: Any, index: int, item: Any) -> str:
        data = None
        try:
            data = None if item.data is None else item.data.get_data()
            lora = self._adapter(request.lora_request)
            if lora is None:
                raise InvalidInputError("the files of its adapter cannot be read")
            signature = replace(self._signature, modality=item.modality, lora=lora)
            base = self._cache.scopes.of(signature, self._options.tenant, caches.NAMESPACE)
            tenant = identity.tenant_of(self._options.tenant, request.cache_salt, base.salt)
            scope = self._cache.scopes.of(signature, tenant, caches.NAMESPACE)
            found = identity.identify(item.modality, data, scope.salt)
            name = identity.name_of(Key(scope.digest, found.digest))
            dtype = str(self._config.model_config.dtype).removeprefix("torch.")
            expected = outputs.Expected(item.modality, request.get_num_encoder_embeds(index), dtype, found.sizes)
            facts = Facts(signature, tenant, expected, caches.trace_of(request))
            self._leases.open(name, facts, request.request_id, time.monotonic())
        except Exception as error:  # noqa: BLE001 - raised in here, anything would end the engine
            self._count("private")
            if item.data is None or (data is not None and not identity.encodable(data)):
                self._lacking.add(request.request_id)
            logger.warning_once("mmcache: a %s is not shared: %s", item.modality, error)
            return identity.PRIVATE + secrets.token_hex(16)
        return name

    def _adapter(self, request: Any) -> str | None:
        """What its adapter does to the encoder; None = it cannot be told. The engine has read the files when it first
        met them and may read them again when it likes: once they have changed, nobody knows which ones it has."""
        if request is None:
            return ""
        known = (request.lora_int_id, request.lora_name, request.lora_path)
        found = engine.adapter(self._config, request)
        if request.load_inplace:
            self._adapters[known] = found
        return found if self._adapters.setdefault(known, found) == found else None

    def weights_changed(self) -> None:
        """The engine's weights are others now, and nobody can say which: what was stored is not found any more, and
        what is stored from now on is found by this engine only, until its next change."""
        version = f"{self._signature.model_version} changed-{secrets.token_hex(16)}"
        self._signature = replace(self._signature, model_version=version)
        self._generation += 1
        self._leases.forget()

    # Scheduler: is it there -----------------------------------------------------------------------------------------

    def _find(self, name: str, facts: Facts) -> outputs.Output | None:
        """The stored output, checked. Any failure is a miss. May run in a thread of its own."""
        key = identity.key_of(name)
        if key is None:
            return None
        widths = self._config.ec_transfer_config.mm_encoder_output_widths
        try:
            with caches.asked_by(facts.trace, self._options):
                value = self._cache.get(key)
            if value is None:
                return None
            found = outputs.unpack(value, facts.expected, width=widths.get(facts.expected.modality))
        except Exception as error:  # noqa: BLE001 - raised in here, anything would end the engine
            self._count("failed")
            logger.warning_once("mmcache: a lookup failed: %s", error)
            return None
        if found is None:
            self._count("refused")
        return found

    def ensure_cache_available(self, request: Any, num_computed_tokens: int) -> bool:
        """False while a lookup in another host's memory is under way, and for a request that is about to be failed."""
        if request.request_id in self._lacking:
            return False
        return self._leases.settled((item.identifier for item in request.mm_features), time.monotonic())

    def has_cache_item(self, identifier: str) -> bool:
        """Whether the output is here. It is read now and held until the worker has it, so yes means yes."""
        return bool(self.is_consumer) and self._leases.holds(identifier)

    def update_state_after_alloc(self, request: Any, index: int) -> None:
        """The engine's cache has room for this item: the step brings what is held, or encodes and stores."""
        name = request.mm_features[index].identifier
        handover = self._leases.take(name)
        if handover is not None:
            self._count("hits")
            self._count("loaded_bytes", handover.output.array.nbytes)
            self._step.loads.append(handover)
            return
        self._count("misses")
        facts = self._leases.facts(name)
        if facts is not None and self.is_producer:
            self._step.saves[name] = facts

    def build_connector_meta(self, scheduler_output: Any) -> Step:
        """What was decided in this step."""
        step, self._step = self._step, Step()
        step.generation = self._generation
        return step

    def take_unavailable_requests(self) -> set[str]:
        """Requests whose content is missing (a uuid without its body): they fail, and may be sent again in full."""
        lacking, self._lacking = self._lacking, set()
        return lacking

    def request_finished(self, request: Any) -> tuple[bool, dict[str, Any] | None]:
        """Nothing is sent to anybody: an output is stored as soon as it is there."""
        self._leases.close(request.request_id)
        self._lacking.discard(request.request_id)
        return False, None

    # Worker ---------------------------------------------------------------------------------------------------------

    def start_load_caches(self, encoder_cache: dict[str, torch.Tensor], **kwargs: Any) -> None:
        """Put what was handed over into the engine's cache."""
        step = self._get_connector_metadata()
        self._look_for_mark(encoder_cache, step)
        for name, output in ((load.name, load.output) for load in step.loads):
            if name not in encoder_cache:
                encoder_cache[name] = outputs.tensor(output, _device())

    def _look_for_mark(self, encoder_cache: dict[str, torch.Tensor], step: Step) -> None:
        """Notice that the weights were loaded anew without the scheduler's knowledge (`reload_weights`). What this step
        loads was chosen before anybody knew; nothing is stored, and the scheduler is told."""
        if step.generation != self._generation:
            self._generation, self._stale = step.generation, False
        elif self._marked and MARK not in encoder_cache:
            self._stale = self._cleared = True
            logger.warning("mmcache: weights were loaded anew; call reset_encoder_cache with it")
        self._marked = True
        encoder_cache[MARK] = torch.empty(0)

    def start_save_caches(self, *, encoder_cache: dict[str, torch.Tensor], **kwargs: Any) -> None:
        """A step begins: what it encodes costs the time from here."""
        self._look_for_mark(encoder_cache, self._get_connector_metadata())
        self._began = time.perf_counter()

    def save_caches(self, encoder_cache: dict[str, torch.Tensor], mm_hash: str, **kwargs: Any) -> None:
        """Copy an output that was just made, and have it stored. One of the workers that all have it does."""
        facts = self._get_connector_metadata().saves.get(mm_hash)
        if facts is None or self._saving is None or self._stale or not _first():
            return
        now = time.perf_counter()
        if not self._saving.save(mm_hash, facts, encoder_cache[mm_hash], now - self._began):
            self._count("dropped")
        self._began = now

    def _store(self, saved: Saved) -> None:
        """In the thread of `Saving`."""
        key = identity.key_of(saved.name)
        try:
            scope = self._cache.scopes.of(saved.facts.signature, saved.facts.tenant, caches.NAMESPACE)
            if key is None or scope.digest != key.scope:
                raise InvalidInputError(f"{saved.name} is no name of this tenant and signature")
            value = outputs.pack(saved.tensor, saved.facts.expected, widen=self._options.at_rest == "int4")
            with caches.asked_by(saved.facts.trace, self._options):
                self._cache.answers.keep(key, value, cost=saved.cost, ttl=None)
        except Exception as error:  # noqa: BLE001 - raised in here, anything would end storing for good
            self._count("failed")
            logger.warning_once("mmcache: an output was not stored: %s", error)
        else:
            self._count("stored")

    # Both -----------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Return when all that was encoded so far is stored, and durable."""
        if self._saving is not None:
            self._saving.close()
        self._cache.flush()

    def shutdown(self) -> None:
        """Store what is left, close the cache. Idempotent."""
        if self._open:
            self._open = False
            if self._executor is not None:
                self._executor.shutdown(wait=False, cancel_futures=True)
            if self._saving is not None:
                self._saving.close()
            caches.release(self._options)

    def _count(self, name: str, count: int = 1) -> None:
        with self._lock:
            self._stats.add(name, count)

    def build_connector_worker_meta(self) -> Told | None:
        """The worker's counts, with the step's results."""
        found = self.get_ec_connector_stats()
        cleared, self._cleared = self._cleared, False
        return Told({} if found is None else found.data, cleared) if found is not None or cleared else None

    def update_connector_output(self, connector_output: Any) -> None:
        """The workers' counts are the scheduler's, too: it is the one that vLLM asks."""
        told = connector_output.ec_connector_worker_meta
        if not isinstance(told, Told):
            return
        for name, count in told.counts.items():
            self._count(name, count)
        if told.cleared:
            self.weights_changed()

    def get_ec_connector_stats(self) -> MMCacheStats | None:
        """What happened since the last call."""
        with self._lock:
            return self._stats.taken()

    @classmethod
    def build_ec_connector_stats(cls, data: dict[str, Any] | None = None) -> MMCacheStats | None:
        """From what another process sent."""
        return MMCacheStats(data=dict(data)) if data is not None else MMCacheStats()

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: dict[int, list[object]]
    ) -> MMCacheMetrics:
        """Counters on vLLM's own endpoint."""
        return MMCacheMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


def _device() -> str:
    kind = current_platform.device_type
    return f"{kind}:{current_platform.current_device()}" if current_platform.is_cuda_alike() else str(kind)


def _first() -> bool:
    """Whether this worker is the first of those that hold the same output."""
    from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

    return bool(get_tensor_model_parallel_rank() == 0)
