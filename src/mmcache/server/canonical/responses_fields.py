"""Every field of `/v1/responses` that is known: OpenAI's, and what vLLM adds. Much is said again in the answer."""

from __future__ import annotations

from typing import Final

from mmcache.server.canonical.fields import (
    DROPPED,
    KEPT,
    NULL,
    NUMBER,
    OPTIONAL,
    Field,
    biases,
    by_name,
    bypasses,
    stops,
)

RESPONSES: Final[dict[str, Field]] = {
    # Sampling.
    "temperature": NUMBER,
    "top_p": NUMBER,
    "max_output_tokens": NUMBER,
    "top_logprobs": NUMBER,
    "reasoning": Field(by_name, NULL),
    # What the model is shown, and what it may say.
    "instructions": OPTIONAL,
    "text": KEPT,
    "tools": KEPT,
    "tool_choice": KEPT,
    "parallel_tool_calls": OPTIONAL,
    "max_tool_calls": NUMBER,
    "truncation": Field(absent=(None, "disabled")),
    "include": OPTIONAL,
    "image": KEPT,
    # Said again in the answer.
    "metadata": Field(by_name, NULL),
    "user": KEPT,
    "safety_identifier": OPTIONAL,
    "service_tier": OPTIONAL,
    "prompt_cache_key": OPTIONAL,
    "prompt_cache_retention": OPTIONAL,
    "prompt_cache_options": KEPT,
    "stream_options": OPTIONAL,
    # Not to be cached: it rests on what the upstream holds, or leaves something there.
    "previous_response_id": bypasses("previous-response"),
    "previous_response": bypasses("previous-response"),
    "previous_input_messages": bypasses("previous-response"),
    "conversation": bypasses("conversation"),
    "prompt": bypasses("prompt-template"),
    "background": bypasses("background", False),
    "background_options": bypasses("background"),
    "context_management": bypasses("context-management"),
    "moderation": bypasses("moderation"),
    "access_programs": bypasses("access-programs"),
    # vLLM's.
    "seed": NUMBER,
    "top_k": NUMBER,
    "min_p": NUMBER,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "repetition_penalty": NUMBER,
    "logit_bias": Field(biases, NULL),
    "stop": Field(stops, NULL),
    "ignore_eos": KEPT,
    "skip_special_tokens": KEPT,
    "include_stop_str_in_output": KEPT,
    "structured_outputs": OPTIONAL,
    "chat_template": OPTIONAL,
    "chat_template_kwargs": Field(by_name, NULL),
    "mm_processor_kwargs": Field(by_name, NULL),
    "media_io_kwargs": Field(by_name, NULL),
    "enable_response_messages": bypasses("include", False),
    "cache_salt": OPTIONAL,
    "request_id": KEPT,
    "priority": DROPPED,
    "vllm_xargs": bypasses("extension"),
    "kv_transfer_params": bypasses("transfer"),
    "ec_transfer_params": bypasses("transfer"),
}

ITEMS: Final = {
    "message": frozenset(("type", "role", "content", "id", "status", "phase")),
    "function_call": frozenset(("type", "call_id", "name", "arguments", "id", "status")),
    "function_call_output": frozenset(("type", "call_id", "output", "id", "status")),
    "custom_tool_call": frozenset(("type", "call_id", "name", "input", "id", "status")),
    "custom_tool_call_output": frozenset(("type", "call_id", "output", "id", "status")),
    "reasoning": frozenset(("type", "id", "summary", "content", "encrypted_content", "status")),
}
"""Items of `input` that hold all that the model is shown of them."""
TEXT_PARTS: Final = {
    "input_text": frozenset(("type", "text", "prompt_cache_breakpoint")),
    "output_text": frozenset(("type", "text", "annotations", "logprobs")),
    "refusal": frozenset(("type", "refusal")),
}
TOOL_KINDS: Final = frozenset(("function", "custom"))
"""Run by the caller."""
TOOL_REASONS: Final = {
    "web_search": "web-search",
    "web_search_2025_08_26": "web-search",
    "web_search_preview": "web-search",
    "web_search_preview_2025_03_11": "web-search",
    "file_search": "file-search",
    "code_interpreter": "code-interpreter",
    "computer": "computer-use",
    "computer_use_preview": "computer-use",
    "mcp": "mcp",
    "image_generation": "image-generation",
    "shell": "shell",
    "local_shell": "shell",
    "apply_patch": "apply-patch",
    "tool_search": "tool-search",
    "namespace": "tool-search",
}
STREAM_OPTIONS: Final = frozenset(("include_obfuscation",))
INCLUDED: Final = ("message.output_text.logprobs", "reasoning.encrypted_content")
"""Of `include`."""
