"""The plug-in file, loaded as RAGFlow does; and what is entered in RAGFlow for its models.

RAGFlow is no package, so the class that its plug-ins inherit is written anew here, with the same interface; the loader,
`pluginlib`, is the one that it uses.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mmcache import Cache
from mmcache.integrations.ragflow import PLUGIN_FILE, addresses, provider_entry
from mmcache.integrations.ragflow.tool import Notes
from mmcache.model.errors import SettingsError

BASE = """
import pluginlib


@pluginlib.Parent("llm_tools")
class LLMToolPlugin:
    @classmethod
    @pluginlib.abstractmethod
    def get_metadata(cls):
        pass

    def invoke(self, **kwargs) -> str:
        raise NotImplementedError
"""
LOAD = """
import json, sys
import pluginlib
from {package}.llm_tool_plugin import LLMToolPlugin

loader = pluginlib.PluginLoader(paths=[{folder!r}])
tools = {{plugin.get_metadata()["name"]: plugin for plugin in loader.plugins["llm_tools"].values()}}
assert all(plugin.version == "1.0.0" and issubclass(plugin, LLMToolPlugin) for plugin in tools.values())
for name, plugin in tools.items():
    told = plugin.get_metadata()
    assert set(told) == {{"name", "displayName", "description", "displayDescription", "parameters"}}
    for parameter in told["parameters"].values():
        assert set(parameter) == {{"type", "description", "displayDescription", "required"}}
found = []
for name, arguments in json.loads(sys.argv[1]):
    found.append(json.loads(tools[name]().invoke(**arguments)))
print(json.dumps([sorted(tools), found]))
"""


def loaded(tmp_path: Path, package: str, calls: list[tuple[str, dict[str, Any]]]) -> Any:
    """What RAGFlow's process would get: the tools, and what calling them gives."""
    pytest.importorskip("pluginlib")
    folder = tmp_path.joinpath(*package.split("."))
    tools = folder / "embedded_plugins" / "llm_tools"
    tools.mkdir(parents=True, exist_ok=True)
    (folder / "llm_tool_plugin.py").write_text(BASE)
    shutil.copy(PLUGIN_FILE, tools)
    script = LOAD.format(package=package, folder=str(folder / "embedded_plugins"))
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(calls)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("package", ["plugin", "agent.plugin"])
def test_ragflow_s_loader_finds_both_tools_and_answers_survive(tmp_path: Path, package: str) -> None:
    tools = tmp_path.joinpath(*package.split(".")) / "embedded_plugins" / "llm_tools"
    tools.mkdir(parents=True)
    (tools / "mmcache_tool.toml").write_text(f'root = "{tmp_path / "cache"}"\nremember = true\n')
    question = {"question": "Which button?"}
    answer = question | {"answer": "The red one.", "sources": "manual, one"}
    names, found = loaded(tmp_path, package, [("mmcache_recall", question), ("mmcache_remember", answer)])
    assert names == ["mmcache_recall", "mmcache_remember"]
    assert found == [{"found": False}, {"stored": True}]
    _, found = loaded(tmp_path, package, [("mmcache_recall", question)])
    assert found == [{"found": True, "answer": "The red one.", "sources": ["manual", "one"]}]
    with Cache(tmp_path / "cache") as cache:  # the webhook, in the proxy's process
        cache.changed("document", "one")
    _, found = loaded(tmp_path, package, [("mmcache_recall", question), ("mmcache_remember", answer)])
    assert found[0] == {"found": False}
    assert not found[1]["stored"]  # what it rests on has just changed
    assert "just changed" in found[1]["reason"]


def notes(tmp_path: Path, **settings: Any) -> Notes:
    file = tmp_path / "mmcache_tool.toml"
    told = {"root": str(tmp_path / "cache"), "remember": True} | settings
    file.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in told.items()))
    return Notes(file)


def test_a_model_stores_nothing_unless_it_is_allowed_to(tmp_path: Path) -> None:
    file = tmp_path / "mmcache_tool.toml"
    file.write_text(f'root = "{tmp_path / "cache"}"')
    kept = Notes(file)
    assert json.loads(kept.remember("q", "a")) == {"stored": False, "reason": "remembering is switched off"}
    assert json.loads(kept.recall("q")) == {"found": False}
    kept.close()


def test_answers_are_of_one_question_tenant_and_version(tmp_path: Path) -> None:
    kept = notes(tmp_path)
    assert json.loads(kept.remember("a question", "an answer"))["stored"]
    assert json.loads(kept.recall("  a question\n"))["answer"] == "an answer"
    for other in ("A question", "a  question", "a question?"):
        assert not json.loads(kept.recall(other))["found"]
    kept.close()
    for settings in ({"tenant": "another"}, {"version": "2"}):
        elsewhere = notes(tmp_path, **settings)
        assert not json.loads(elsewhere.recall("a question"))["found"]
        elsewhere.close()


@pytest.mark.parametrize("question", ["", " ", None, 7, "x" * 100_001])
def test_a_tool_never_raises(tmp_path: Path, question: Any) -> None:
    kept = notes(tmp_path)
    assert json.loads(kept.recall(question))["found"] is False
    assert json.loads(kept.remember(question, "a"))["stored"] is False
    assert json.loads(kept.remember("q", question))["stored"] is False
    assert json.loads(kept.remember("q", "a", [7]))["stored"] is False
    kept.close()


@pytest.mark.parametrize(
    "told",
    ["", "root = 7", "root =", 'root = "x"\nunknown = 1', 'root = "x"\nremember = "false"', 'root = "x"\ntenant = 1'],
)
def test_a_wrong_configuration_is_said(tmp_path: Path, told: str) -> None:
    file = tmp_path / "mmcache_tool.toml"
    assert "cannot read" in json.loads(Notes(file).recall("q"))["reason"]
    file.write_text(told)
    assert "mmcache_tool.toml" in json.loads(Notes(file).recall("q"))["reason"]


# The provider ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "proxy", ["http://cache:8090", "http://cache:8090/", "http://cache:8090/v1", "http://cache:8090/v1/"]
)
def test_addresses_are_what_ragflow_s_clients_expect(proxy: str) -> None:
    from urllib.parse import urljoin

    found = addresses(proxy)
    assert urljoin(found["embedding"], "v1") == "http://cache:8090/v1"  # what its clients make of it
    assert found["chat"] == "http://cache:8090/v1"
    assert found["rerank"] == "http://cache:8090/v1/rerank"


@pytest.mark.parametrize("proxy", ["", "cache:8090", "ftp://cache", "http://user:word@cache", "http://cache/?x=1"])
def test_what_is_no_address_is_refused(proxy: str) -> None:
    with pytest.raises(SettingsError):
        addresses(proxy)


def test_the_entry_names_the_models() -> None:
    entry = provider_entry(chat={"qwen3": 32768}, embedding=["bge-m3"], rerank=["bge-reranker"])
    assert entry["name"] == "OpenAI-API-Compatible"
    assert [(row["llm_name"], row["model_type"], row["max_tokens"]) for row in entry["llm"]] == [
        ("qwen3", "chat", 32768), ("bge-m3", "embedding", 8192), ("bge-reranker", "rerank", 8192),
    ]  # fmt: skip
    assert set(entry) == {"name", "logo", "tags", "status", "rank", "llm"}
    with pytest.raises(SettingsError):
        provider_entry(tts=["x"])
