"""A plug-in of RAGFlow: two tools for its agents, `mmcache_recall` and `mmcache_remember`.

Copy this file into `plugin/embedded_plugins/llm_tools` of RAGFlow (later versions: `agent/plugin/…`), with a file
`mmcache_tool.toml` beside it, and install mmcache there. It is imported by RAGFlow's loader only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mmcache.integrations.ragflow.tool import Notes

try:
    from plugin.llm_tool_plugin import LLMToolPlugin  # type: ignore[import-not-found]
except ImportError:
    from agent.plugin.llm_tool_plugin import LLMToolPlugin  # type: ignore[import-not-found]

NOTES = Notes(Path(__file__).with_suffix(".toml"))


def _text(description: str, required: bool) -> dict[str, Any]:
    return {"type": "string", "description": description, "displayDescription": description, "required": required}


_QUESTION = _text("The user's question, whole and word for word", True)
_SOURCES = _text("Ids of the datasets and documents that the answer rests on, with commas between them", False)


class MMCacheRecall(LLMToolPlugin):  # type: ignore[misc]
    """Looks up what was answered before."""

    _version_ = "1.0.0"

    @classmethod
    def get_metadata(cls) -> dict[str, Any]:
        """What the model and RAGFlow's page are told."""
        told = "Look up whether this question was answered before. Call it first; if found, give that answer."
        return {
            "name": "mmcache_recall",
            "displayName": "mmcache: recall",
            "description": told,
            "displayDescription": told,
            "parameters": {"question": _QUESTION},
        }

    def invoke(self, question: str) -> str:
        """JSON: `found`, and `answer` or `reason`."""
        return NOTES.recall(question)


class MMCacheRemember(LLMToolPlugin):  # type: ignore[misc]
    """Stores an answer, where the configuration allows that."""

    _version_ = "1.0.0"

    @classmethod
    def get_metadata(cls) -> dict[str, Any]:
        """What the model and RAGFlow's page are told."""
        told = "Remember your final answer to a question, with the datasets and documents that it rests on."
        answer = _text("The answer, whole", True)
        return {
            "name": "mmcache_remember",
            "displayName": "mmcache: remember",
            "description": told,
            "displayDescription": told,
            "parameters": {"question": _QUESTION, "answer": answer, "sources": _SOURCES},
        }

    def invoke(self, question: str, answer: str, sources: str = "") -> str:
        """JSON: `stored`, and `reason` where it was not."""
        return NOTES.remember(question, answer, sources)
