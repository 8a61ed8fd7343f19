"""vLLM's encoder outputs, kept across restarts and shared by engines: an encoder-cache connector and its scheduler.

    vllm serve MODEL --mm-processor-cache-gb 0 --scheduler-cls mmcache.integrations.vllm.MMCacheScheduler \\
        --ec-transfer-config '{"ec_connector": "MMCacheConnector", "ec_role": "ec_both",
            "ec_connector_module_path": "mmcache.integrations.vllm",
            "ec_connector_extra_config": {"root": "/var/cache/mmcache"}}'

vLLM names both by path; neither vLLM nor torch is imported before it asks for one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmcache.integrations.vllm.connector import MMCacheConnector
    from mmcache.integrations.vllm.scheduler import MMCacheScheduler

__all__ = ["MMCacheConnector", "MMCacheScheduler"]


def __getattr__(name: str) -> Any:
    if name == "MMCacheConnector":
        from mmcache.integrations.vllm.connector import MMCacheConnector

        return MMCacheConnector
    if name == "MMCacheScheduler":
        from mmcache.integrations.vllm.scheduler import MMCacheScheduler

        return MMCacheScheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
