"""What the upstream answers to a chat request. Each field that OpenAI's protocol lets change an answer changes it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mmcache.model.errors import InvalidInputError

Look = Callable[[str, str | None, float, int], str]
"""`look(data_url, question, temperature, seed)`: what the model says; question None: it describes the picture."""

MODELS = ("vqa-a", "vqa-b")
KEYS = ("sk-tenant-one", "sk-tenant-two")
"""API keys that the upstream knows."""
FRENCH = {
    "yes": "oui", "no": "non", "circle": "cercle", "rectangle": "rectangle", "triangle": "triangle", "black": "noir",
    "blue": "bleu", "brown": "brun", "gray": "gris", "green": "vert", "red": "rouge", "teal": "sarcelle",
    "yellow": "jaune", "a": "un",
}  # fmt: skip
SENTENCES = ("The answer is {}.", "It is {}.", "I see this: {}.", "Clearly {}.")
"""The first where nothing is left to chance."""
RESPONSE = "La réponse est {}."
NO_SEED = random.SystemRandom()


def reply(request: Mapping[str, Any], look: Look) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """(choices, usage) of a request to `/v1/chat/completions`. Raises `InvalidInputError` for what cannot be answered.

    A request without temperature has 0. Without a seed, a temperature above 0 leaves the answer to chance.
    """
    temperature, seed = float(request.get("temperature") or 0), request.get("seed")
    number = int(request.get("n") or 1)
    if request.get("model") not in MODELS or not 1 <= number <= 8:
        raise InvalidInputError(f"models are {', '.join(MODELS)}; n is between 1 and 8")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidInputError("there are no messages")
    first = NO_SEED.randrange(1 << 30) if seed is None else int(seed)
    choices = [_choice(request, messages, place, temperature, first + place, look) for place in range(number)]
    asked = sum(len(text.split()) for message in messages for text in texts(message)) + 256 * len(pictures(messages))
    said = sum(len((choice["message"]["content"] or "").split()) for choice in choices)
    return choices, {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}


def texts(message: Mapping[str, Any]) -> list[str]:
    """A message's words."""
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or () if part.get("type") == "text"]


def pictures(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The pictures of the last message that has any, in order, as data URLs."""
    for message in reversed(messages):
        parts = message["content"] if isinstance(message.get("content"), list) else []
        if found := [part["image_url"]["url"] for part in parts if part.get("type") == "image_url"]:
            return found
    return []


def _choice(
    request: Mapping[str, Any], messages: list[Any], place: int, temperature: float, seed: int, look: Look
) -> dict[str, Any]:
    question = " ".join(texts(messages[-1]))
    found = "; ".join(look(url, question, temperature, seed) for url in pictures(messages))
    if not found:
        raise InvalidInputError("there is no picture")
    if request["model"] == "vqa-b":
        found = "; ".join(look(url, None, temperature, seed) for url in pictures(messages)) + f" ({found})"
    told = " ".join(text for message in messages[:-1] if message["role"] != "assistant" for text in texts(message))
    sentence = random.Random(seed).choice(SENTENCES) if temperature else SENTENCES[0]
    if "French" in told:
        found, sentence = re.sub(r"[a-z]+", lambda word: FRENCH.get(word[0], word[0]), found), RESPONSE
    message: dict[str, Any] = {"role": "assistant", "content": None}
    choice: dict[str, Any] = {"index": place, "message": message, "logprobs": None}
    if request.get("tools") and request.get("tool_choice") != "none":
        named = {"name": request["tools"][0]["function"]["name"], "arguments": json.dumps({"answer": found})}
        message["tool_calls"] = [{"id": f"call_{place}", "type": "function", "function": named}]
        return choice | {"finish_reason": "tool_calls"}
    text = _shaped(request.get("response_format"), told, found) or sentence.format(found)
    if "UPPERCASE" in told:
        text = text.upper()
    message["content"], reason = _cut(request, text)
    return choice | {"finish_reason": reason}


def _shaped(form: Mapping[str, Any] | None, told: str, found: str) -> str | None:
    """The answer as JSON where that is asked for."""
    kind = (form or {}).get("type")
    if form is not None and kind == "json_schema":
        return json.dumps({next(iter(form["json_schema"]["schema"]["properties"])): found})
    return json.dumps({"answer": found}) if kind == "json_object" or "JSON" in told else None


def _cut(request: Mapping[str, Any], text: str) -> tuple[str, str]:
    """Up to the first stop sequence, and to the most tokens (here: words)."""
    stops = request.get("stop") or []
    places = [text.index(stop) for stop in ([stops] if isinstance(stops, str) else stops) if stop in text]
    text = text[: min(places)] if places else text
    words, most = text.split(" "), request.get("max_completion_tokens") or request.get("max_tokens")
    return (" ".join(words[:most]), "length") if most and len(words) > most else (text, "stop")
