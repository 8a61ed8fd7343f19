"""LMCache's encoder engine behind vLLM's connector interface: only what its own adapter leaves to the caller."""

from __future__ import annotations

from typing import Any

from lmcache.integration.vllm.vllm_ec_adapter import LMCacheECConnectorImpl
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase


class LMCacheConnector(ECConnectorBase):  # type: ignore[misc]
    """Everything is passed on."""

    def __init__(self, vllm_config: Any, role: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role)
        self._inner = LMCacheECConnectorImpl(vllm_config, role, self)

    def start_load_caches(self, encoder_cache: Any, **kwargs: Any) -> None:
        self._inner.start_load_caches(encoder_cache, **kwargs)

    def save_caches(self, encoder_cache: Any, mm_hash: str, **kwargs: Any) -> None:
        self._inner.save_caches(encoder_cache, mm_hash, **kwargs)

    def has_cache_item(self, identifier: str) -> bool:
        return bool(self._inner.has_cache_item(identifier))

    def update_state_after_alloc(self, request: Any, index: int) -> None:
        self._inner.update_state_after_alloc(request, index)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        return self._inner.build_connector_meta(scheduler_output)

    def shutdown(self) -> None:
        self._inner.close()
