"""RAGFlow: as a model provider, by its SDK, with a plug-in for its agents, and a webhook.

`provider.py` says what to enter in RAGFlow so that its models are asked through `mmcache serve`. `CachedRetrieval` and
`JointRetrieval` stand in front of the SDK's `rag.retrieve`. `mmcache_tool.py` is the plug-in's file, `tool.py` what it
does. `webhook.py` takes messages of what has changed, `mounted.py` puts it in front of the proxy.
"""

from mmcache.integrations.ragflow.joint import JointRetrieval
from mmcache.integrations.ragflow.mounted import Mounted
from mmcache.integrations.ragflow.provider import addresses, provider_entry
from mmcache.integrations.ragflow.retrieval import CachedRetrieval
from mmcache.integrations.ragflow.tool import PLUGIN_FILE
from mmcache.integrations.ragflow.webhook import receive, sign

__all__ = [
    "PLUGIN_FILE",
    "CachedRetrieval",
    "JointRetrieval",
    "Mounted",
    "addresses",
    "provider_entry",
    "receive",
    "sign",
]
