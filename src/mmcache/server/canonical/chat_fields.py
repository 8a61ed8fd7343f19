"""Every field of `/v1/chat/completions` that is known: OpenAI's, and what vLLM adds.

Sampling parameters that are left out are not what the documentation calls their default: vLLM takes those of the
model's own `generation_config.json`. So `top_p: 1` and no `top_p` are two requests here. Only where no server has such
a setting does a default equal its absence.
"""

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
    number,
    stops,
)

OPENAI: Final[dict[str, Field]] = {
    # Sampling.
    "temperature": NUMBER,
    "top_p": NUMBER,
    "seed": NUMBER,
    "frequency_penalty": NUMBER,
    "presence_penalty": NUMBER,
    "logit_bias": Field(biases, NULL),
    "max_tokens": NUMBER,
    "max_completion_tokens": NUMBER,
    "stop": Field(stops, NULL),
    "n": Field(number, (None, 1)),
    "logprobs": Field(absent=(None, False)),
    "top_logprobs": NUMBER,
    "reasoning_effort": OPTIONAL,
    "verbosity": OPTIONAL,
    # What the model is shown, and what it may say.
    "tools": KEPT,
    "tool_choice": KEPT,
    "parallel_tool_calls": KEPT,
    "functions": KEPT,
    "function_call": KEPT,
    "response_format": KEPT,
    "prediction": OPTIONAL,
    "modalities": Field(absent=(None, ["text"])),
    # Said again in the answer, or judged by who asks.
    "metadata": Field(by_name, NULL),
    "service_tier": OPTIONAL,
    "safety_identifier": OPTIONAL,
    "prompt_cache_options": KEPT,
    # How it is sent.
    "stream_options": OPTIONAL,
    # Nothing of the answer.
    "user": DROPPED,
    "prompt_cache_key": DROPPED,
    "prompt_cache_retention": DROPPED,
    # Not to be cached.
    "audio": bypasses("audio-output"),
    "store": bypasses("store", False),
    "web_search_options": bypasses("web-search"),
    "moderation": bypasses("moderation"),
}

VLLM: Final[dict[str, Field]] = {
    # Sampling.
    "top_k": NUMBER,
    "min_p": NUMBER,
    "repetition_penalty": NUMBER,
    "length_penalty": NUMBER,
    "min_tokens": NUMBER,
    "best_of": NUMBER,
    "use_beam_search": KEPT,
    "early_stopping": KEPT,
    "ignore_eos": KEPT,
    "stop_token_ids": OPTIONAL,
    "include_stop_str_in_output": KEPT,
    "skip_special_tokens": KEPT,
    "spaces_between_special_tokens": KEPT,
    "allowed_token_ids": OPTIONAL,
    "bad_words": KEPT,
    "thinking_token_budget": OPTIONAL,
    "repetition_detection": OPTIONAL,
    "watermarking": OPTIONAL,
    # What the model is shown.
    "echo": KEPT,
    "add_generation_prompt": KEPT,
    "continue_final_message": KEPT,
    "add_special_tokens": KEPT,
    "truncate_prompt_tokens": OPTIONAL,
    "truncation_side": OPTIONAL,
    "documents": OPTIONAL,
    "chat_template": OPTIONAL,
    "chat_template_kwargs": Field(by_name, NULL),
    "enable_thinking": OPTIONAL,  # as DashScope and SGLang have it; RAGFlow sends it for Qwen 3
    "mm_processor_kwargs": Field(by_name, NULL),
    "media_io_kwargs": Field(by_name, NULL),
    # What it may say.
    "structured_outputs": OPTIONAL,
    "guided_json": OPTIONAL,
    "guided_regex": OPTIONAL,
    "guided_choice": OPTIONAL,
    "guided_grammar": OPTIONAL,
    "guided_decoding_backend": OPTIONAL,
    "guided_whitespace_pattern": OPTIONAL,
    "structural_tag": OPTIONAL,
    # What else is told.
    "prompt_logprobs": NUMBER,
    "logprob_token_ids": OPTIONAL,
    "include_reasoning": KEPT,
    "return_tokens_as_token_ids": OPTIONAL,
    "return_token_ids": OPTIONAL,
    "return_token_offsets": OPTIONAL,
    "return_prompt_text": OPTIONAL,
    "return_mm_kwargs": KEPT,
    "routed_experts_prompt_start": NUMBER,
    "stream_interval": NUMBER,
    # Who asks: who keeps its prefixes apart from others' wants its answers apart, too.
    "cache_salt": OPTIONAL,
    "request_id": KEPT,
    "session_id": OPTIONAL,
    # When it is computed.
    "priority": DROPPED,
    # State of other servers, or what an extension makes of it.
    "kv_transfer_params": bypasses("transfer"),
    "ec_transfer_params": bypasses("transfer"),
    "vllm_xargs": bypasses("extension"),
}

CHAT: Final[dict[str, Field]] = OPENAI | VLLM
MESSAGE: Final = frozenset(
    (
        "role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "reasoning",
        "reasoning_content", "annotations", "audio", "tools", "task",
    )
)  # fmt: skip
TEXT_PARTS: Final = {
    "text": frozenset(("type", "text", "prompt_cache_breakpoint")),
    "refusal": frozenset(("type", "refusal", "prompt_cache_breakpoint")),
    "thinking": frozenset(("type", "thinking", "closed")),
}
"""Parts that are words alone; of all others the content must be identified."""
STREAM_OPTIONS: Final = frozenset(("include_usage", "include_obfuscation", "continuous_usage_stats"))
TOOL_KINDS: Final = frozenset(("function", "custom"))
"""Run by the caller."""
MOST_CHOICES: Final = 128
"""As OpenAI has it."""
