"""vLLM's scheduler, with items named by content and tenant before it looks at them.

An item's name is the key of the engine's prefix cache, of its encoder cache, and of the connector. It is made from the
user's `uuid` in another process, before anything of ours is asked; a scheduler class is the first of vLLM's hooks that
sees content and `cache_salt` together. Nothing of vLLM is replaced: this is its option `--scheduler-cls`.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from mmcache.integrations.vllm.connector import MMCacheConnector
from mmcache.model.errors import SettingsError


class _ByContent:
    """In front of either of vLLM's schedulers."""

    ec_connector: Any

    def add_request(self, request: Any) -> None:
        if request.mm_features:
            self.ec_connector.admit(request)
            request.block_hashes.clear()  # they were made from the names that it came with
            request.update_block_hashes()
        super().add_request(request)  # type: ignore[misc]

    def reset_encoder_cache(self) -> None:
        super().reset_encoder_cache()  # type: ignore[misc]
        self.ec_connector.weights_changed()


class _Plain(_ByContent, Scheduler):  # type: ignore[misc]
    pass


class _Async(_ByContent, AsyncScheduler):  # type: ignore[misc]
    pass


def MMCacheScheduler(*arguments: Any, vllm_config: Any, **keywords: Any) -> Scheduler:  # noqa: N802 - named as a class
    """Either of vLLM's schedulers, as it would choose itself. Raises `SettingsError` without our connector."""
    kind = _Async if vllm_config.scheduler_config.async_scheduling else _Plain
    made = kind(*arguments, vllm_config=vllm_config, **keywords)
    if not isinstance(made.ec_connector, MMCacheConnector):
        raise SettingsError("MMCacheScheduler goes with MMCacheConnector: give it in --ec-transfer-config")
    return made
