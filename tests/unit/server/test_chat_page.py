"""The page that says when a chat answer is reused names every field and every reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mmcache.server.canonical import chat_fields, fields, responses_fields

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "concepts" / "when-a-chat-answer-is-reused.md").read_text(encoding="utf-8")
CHAT, _, RESPONSES = PAGE.partition("### `/v1/responses`")


@pytest.mark.parametrize(
    ("text", "table"), [(CHAT, chat_fields.CHAT), (RESPONSES, responses_fields.RESPONSES)], ids=["chat", "responses"]
)
def test_every_field_stands_in_its_table(text: str, table: dict[str, fields.Field]) -> None:
    rows = [row for row in text.splitlines() if row.startswith("| ")]
    for name, entry in table.items():
        (row,) = (row for row in rows if f"`{name}`" in row.partition("|")[2].split(" | ")[0])
        said = row.split(" | ")[-1]
        if entry.bypass:
            assert f"`{entry.bypass}`" in said, name
        elif entry.dropped:
            assert "no part of the key" in said, name


def test_every_reason_is_told() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/mmcache/server/canonical").glob("*.py"))
    reasons = {*re.findall(r'RefusedError\("([a-z-]+)"\)', source), *responses_fields.TOOL_REASONS.values()}
    missing = {reason for reason in reasons if reason not in PAGE}
    assert missing <= {"malformed", "no-model", "unknown-part", "audio-history"}  # whose names say it
