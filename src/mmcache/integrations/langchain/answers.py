"""Answers of a model as JSON text and back, exactly; and which of them are whole.

Nothing is loaded by a stored name: there are four kinds of generations and LangChain's own kinds of messages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, message_to_dict, messages_from_dict
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation, GenerationChunk

from mmcache.integrations.framework.results import UnstorableError

_KINDS = {one.__name__: one for one in (Generation, GenerationChunk, ChatGeneration, ChatGenerationChunk)}
WHOLE = frozenset(
    ["stop", "end_turn", "tool_calls", "tool_use", "function_call", "stop_sequence", "eos", "eos_token", "complete",
     "completed", "finished", "finish", "end", "1"]
)  # fmt: skip
"""What providers call an answer that ended by itself. Whatever has another reason is not kept."""
_REASONS = ("finish_reason", "stop_reason", "done_reason", "finishReason", "stopReason", "completion_reason")


def text_of(generations: Sequence[Any]) -> str:
    """Raises `UnstorableError` for an answer that is empty, cut off, filtered, or would come back as something else."""
    if not generations:
        raise UnstorableError("there is no answer")
    try:
        text = json.dumps([_plain(one) for one in generations])
        same = answers_of(text) == list(generations)
    except (TypeError, ValueError) as error:
        raise UnstorableError(f"an answer is no JSON: {error}") from error
    if not same:
        raise UnstorableError("an answer does not come back from JSON as it was")
    return text


def answers_of(text: str) -> list[Any]:
    """The generations again, new objects each time: LangChain writes to them."""
    return [_made(one) for one in json.loads(text)]


def _plain(one: Any) -> dict[str, Any]:
    if _KINDS.get(type(one).__name__) is not type(one):
        raise UnstorableError(f"a {type(one).__name__} is not kept")
    message = getattr(one, "message", None)
    reasons = [one.generation_info, getattr(message, "response_metadata", None)]
    for place in filter(None, reasons):
        for name in _REASONS:
            reason = place.get(name)
            if reason is not None and str(reason).lower().rpartition(".")[2] not in WHOLE:
                raise UnstorableError(f"an answer that ended by {reason!r:.40} is not kept")
    if message is None:
        if not one.text:
            raise UnstorableError("the answer is empty")
        return {"kind": type(one).__name__, "text": one.text, "info": one.generation_info}
    if isinstance(message, AIMessage) and message.invalid_tool_calls:
        raise UnstorableError("an answer with malformed tool calls is not kept")
    if not (message.content or getattr(message, "tool_calls", None) or message.additional_kwargs):
        raise UnstorableError("the answer is empty")
    return {"kind": type(one).__name__, "message": message_to_dict(message), "info": one.generation_info}


def _made(one: dict[str, Any]) -> Any:
    kind = _KINDS[one["kind"]]
    if "message" not in one:
        return kind(text=one["text"], generation_info=one["info"])
    return kind(message=messages_from_dict([one["message"]])[0], generation_info=one["info"])
