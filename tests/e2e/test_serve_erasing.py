"""What belongs to an API key, or to a tenant of a front proxy, can be erased and limited, whatever else its requests
had in their headers."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("uvloop")
httpx = pytest.importorskip("httpx")

from tests.e2e.test_serve import EMBEDDINGS, serving, upstream  # noqa: E402, F401
from tests.unit.server.upstream import Upstream  # noqa: E402

from mmcache.cli.app import run  # noqa: E402

CONFIG = """
[server]
admin_token_env = "ADMIN"
[trust]
front_token_env = "ADMIN"
[tenants.payments]
service = "critical"
quota = "1MiB"
"""
FORMS: list[dict[str, str]] = [
    {"authorization": "Bearer sk-forget"}, {"authorization": "Bearer sk-forget", "openai-organization": "o"},
    {"authorization": "sk-forget"}, {"api-key": "sk-forget"}, {"x-api-key": "sk-forget", "accept-language": "de"},
]  # fmt: skip
PAYMENTS: list[dict[str, str]] = [
    front | {"x-mmcache-tenant": "payments", "x-mmcache-front-token": "the admin's long token"}
    for front in ({}, {"authorization": "Bearer sk-forget"}, {"openai-organization": "o"})
]
OTHER = {"authorization": "Bearer sk-other"}


def test_all_of_a_tenant_is_erased(
    upstream: tuple[Upstream, str],  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, behind = upstream
    config, root = tmp_path / "mmcache.toml", str(tmp_path / "kept")
    config.write_text(CONFIG)
    options = ("--config", str(config), "--root", root, "--upstream", behind)
    monkeypatch.setenv("ADMIN", "the admin's long token")

    def said(*command: str) -> Any:
        assert run([*command, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    monkeypatch.setattr("sys.stdin", io.StringIO("sk-forget\n"))
    with serving(*options, cwd=tmp_path) as proxy:

        def outcome(headers: dict[str, str]) -> str:
            body = {"model": "small", "input": "a secret of mine"}
            answer = httpx.post(f"{proxy.address}{EMBEDDINGS}", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            found: str = answer.headers["x-mmcache"].partition(";")[0]
            return found

        everybody = [*FORMS, *PAYMENTS, OTHER]
        assert [outcome(headers) for headers in everybody].count("miss") == len(everybody) - 1  # payments' key is none
        assert {outcome(headers) for headers in everybody} == {"hit"}
        name = said("serve", *options, "--tenant-of-key")["tenant"]
        assert name.startswith("key:")
        status = httpx.get(
            f"{proxy.address}/mmcache/status", headers={"authorization": "Bearer the admin's long token"}
        )
        assert {each["tenant"] for each in status.json()["tenants"]} >= {name, "payments"}
        assert said("purge", "--tenant", name, "--root", root)["blocks"] == len(FORMS)
        assert {outcome(headers) for headers in FORMS} == {"miss"}
        assert {outcome(headers) for headers in [*PAYMENTS, OTHER]} == {"hit"}
        assert said("purge", "--tenant", "payments", "--root", root)["blocks"] == 2
        assert outcome(OTHER) == "hit"
        assert proxy.end() == 0
    assert said("purge", "--tenant", name, "--root", root)["blocks"] == len(FORMS)
    assert said("purge", "--all", "--root", root)["blocks"] == 1


def test_a_key_is_asked_for_where_there_is_a_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("sk-forget\n"))
    options = ["serve", "--upstream", "http://a", "--tenant-of-key", "--root", str(tmp_path / "mistyped")]
    assert run(options) == 3
    assert "there is no cache" in capsys.readouterr().err
    assert not (tmp_path / "mistyped").exists()
