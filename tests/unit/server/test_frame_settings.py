"""The configuration file, and what it says about mistakes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from mmcache.model.errors import SettingsError
from mmcache.server.config import FetchRules, RouteRules, ServerSettings, TrustRules
from mmcache.server.settings_file import FETCH, ROUTE, SERVER, TELEMETRY, TRUST, UPSTREAM, read
from mmcache.settings import Tenant

WHOLE = """
[server]
host = "0.0.0.0"
port = 9000
drain_seconds = 5
rate = 10.5
access_log = false
admin_token_env = "ADMIN"

[upstream]
url = "https://models.example/openai/"
kind = "vllm"
video_uuids = true
version = "2026-11"
connect_seconds = 1
silence_seconds = 60.0
connections = 10
keepalive_seconds = 2
largest_answer_bytes = "1MiB"

[cache]
memory = "2GiB"
root = "/tmp/somewhere"

[tenants.payments]
service = "critical"

[trust]
anonymous = "open"
front_token_env = "FRONT"
front_networks = ["10.0.0.0/8"]
authority = ""
authority_seconds = 5
harmless_headers = ["x-mesh"]
secret_env = "SECRET"

[fetch]
allowed = true
hosts = ["a.example", ".b.example"]
largest_bytes = "5MB"

[routes.default]
ttl_seconds = 60
largest_body_bytes = "1MiB"

[routes."/v1/embeddings"]
mode = "shadow"
ttl_seconds = 10.5
"""


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADMIN", "a" * 20)
    monkeypatch.setenv("FRONT", "f" * 20)
    monkeypatch.setenv("SECRET", "0f" * 32)
    monkeypatch.setenv("SHORT", "short")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mmcache.toml"


def test_all_of_it_is_read(file: Path) -> None:
    file.write_text(WHOLE)
    found = read(file)
    assert found.server == ServerSettings(
        "https://models.example/openai", kind="vllm", video_uuids=True, host="0.0.0.0", port=9000, version="2026-11",
        connect_seconds=1, upstream_seconds=60.0,
        drain_seconds=5, connections=10, keepalive_seconds=2, largest_answer_bytes=1 << 20, rate=10.5,
        access_log=False, admin_token="a" * 20,
        routes={
            "default": RouteRules(ttl_seconds=60, largest_body_bytes=1 << 20),
            "/v1/embeddings": RouteRules("shadow", 10.5, largest_body_bytes=1 << 20),
        },
        fetch=FetchRules(True, hosts=("a.example", ".b.example"), largest_bytes=5_000_000),
        trust=TrustRules("open", "f" * 20, ("10.0.0.0/8",), None, 5, ("x-mesh",)),
    )  # fmt: skip
    assert found.cache == {
        "memory": "2GiB", "root": "/tmp/somewhere", "tenants": {"payments": Tenant("critical")},
        "secret": b"\x0f" * 32,
    }  # fmt: skip
    assert "f" * 20 not in repr(found)
    assert found.server.rules("/v1/rerank").ttl_seconds == 60
    assert found.server.rules("/v1/embeddings").mode == "shadow"


def test_the_command_line_is_enough_and_holds_before_the_file(file: Path) -> None:
    assert read(None, upstream="http://localhost:8000").server == ServerSettings("http://localhost:8000")
    file.write_text(WHOLE)
    found = read(file, upstream="http://b:1/", port=0, kind=None, root="/tmp/b", shared="valkey://a", version="3")
    assert (found.server.upstream, found.server.port, found.server.kind) == ("http://b:1", 0, "vllm")
    assert (found.server.version, found.cache["root"], found.cache["shared"]) == ("3", "/tmp/b", "valkey://a")
    with pytest.raises(SettingsError, match="--upstream URL"):
        read(None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[server", "cannot read"),
        ("[sever]", "no table sever; there are cache, fetch, routes, server, telemetry, tenants, trust, upstream"),
        ("server = 1", r"\[server\] is a table"),
        (
            "[server]\n\nprot = 1",
            r"line 3: \[server\] has no prot; it takes access_log, admin_token_env",
        ),
        ('[server]\nport = "9000"', r"line 2: \[server.*Expected `int`, got `str`"),
        ("[server]\nport = 70000", "between 0 .* and 65535, not 70000"),
        ("[server]\nrate = 0", "rate is a number above 0"),
        ("[server]\nrate = inf", "rate is a number above 0"),
        ("[server]\nadmin_token = 'secret'", "has no admin_token; it takes .*admin_token_env"),
        ("[server]\nadmin_token_env = 'NOT_SET'", "line 2: admin_token_env is the name .* and none is called so"),
        ("[server]\nadmin_token_env = 'SHORT'", r"\$SHORT holds less than 16"),
        ("[server]\nadmin_token_env = 5", "the name of an environment variable"),
        ("[upstream]\nkind = 'other'", "Invalid enum value 'other'"),
        ("[upstream]\nurl = 'localhost:8000'", "http://host:port"),
        ("[upstream]\nurl = 'http://a/v1/'", "without /v1"),
        ("[upstream]\nurl = 'http://user:pw@a/'", "without a user"),
        ("[upstream]\nurl = 'http://a:b'", "cannot be read"),
        ("[upstream]\nurl = 'http://a?b=c'", "without a user or a query"),
        ("[upstream]\nlargest_answer_bytes = 'much'", "not a size"),
        ("[cache]\nmemroy = 1", r"\[cache\] has no memroy"),
        ("[trust]\nfront_networks = ['a']", "are like 10.0.0.0/8"),
        ("[trust]\nanonymous = 'key:1'", "is a tenant's name"),
        ("[trust]\nauthority = 'v1/models'", "a path of the upstream"),
        ("[trust]\nauthority_seconds = -1", "authority_seconds is a number above 0"),
        ("[trust]\nsecret_env = 'ADMIN'", "64 hexadecimal digits"),
        ("[fetch]\nallow = true", r"\[fetch\] has no allow; it takes allowed"),
        ("[fetch]\nhosts = 'a'", "Expected `array`"),
        ("[routes.embeddings]", "a route is a path in quotes"),
        ("routes = 1", "routes are tables"),
        ("[routes.'/v1/embeddings']\nmode = 'of'", r"line 2: \[routes./v1/embeddings\] Invalid enum value 'of'"),
        ("[routes.'/v1/embeddings']\nttl = 1", "has no ttl; it takes identity, largest_body_bytes"),
        ("[routes.default]\nsemantic_max_error = 2.0", "between 0 and 1"),
        ("[routes.default]\nmost_inputs = 0", "most_inputs is a number above 0"),
    ],
)
def test_mistakes_are_named_with_what_is_allowed(file: Path, text: str, told: str) -> None:
    file.write_text(text)
    options = {} if "url" in text else {"upstream": "http://localhost:8000"}
    with pytest.raises(SettingsError, match=told):
        read(file, **options)


def test_every_setting_stands_in_the_file_and_in_the_reference() -> None:
    told = (Path(__file__).parents[3] / "docs/reference/serve-config.md").read_text()
    names = {each.name for each in fields(ServerSettings)} - {"routes", "fetch", "trust", "telemetry"}
    assert names == {*SERVER.values(), *UPSTREAM.values()}
    for name in (*SERVER, *UPSTREAM, *TRUST, *FETCH, *ROUTE, *TELEMETRY):
        assert f"`{name}`" in told, name


def test_a_file_that_is_not_there(file: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read the configuration"):
        read(file)
