"""Who asks, and from where: words of few, and regions that no client can make up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.conftest import KEY, World
from tests.unit.server.echo import ECHO, echoed

from mmcache import attribution
from mmcache.attribution import Attribution
from mmcache.cli.serve import serve
from mmcache.model.errors import SettingsError
from mmcache.server import clients
from mmcache.server.clients import word
from mmcache.server.config import TelemetryRules, TrustRules
from mmcache.server.exchange import Answered, Asked, Proxy
from mmcache.server.settings_file import read

TOKEN = "the front proxy's token"
FRONT = {"x-mmcache-front-token": TOKEN}


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (None, ""), (b"", ""), (b"OpenAI/Python 2.8.0", "openai-python/2.8"),
        (b"AsyncOpenAI/Python 1.3.5", "openai-python/1.3"), (b"AsyncAzureOpenAI/Python 2.8.1", "openai-python/2.8"),
        (b"OpenAI/JS 6.1.0", "openai-js/6.1"), (b"curl/8.5.0", "curl/8.5"),
        (b"Go-http-client/1.1", "go-http-client/1.1"),
        (b"python-requests/2.32.3", "python-requests/2.32"), (b"Python/3.11 aiohttp/3.12.1", "aiohttp/3.12"),
        (b"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36", "browser"), (b"kube-probe/1.31+", "kube-probe/1.31"),
        (b"curl", "curl"), (b"curl/12345.1", "curl"), (b"curl/x", "curl"), (b"CURL/8.5", "curl/8.5"),
        (b"<script>alert(1)</script>", "other"), (b"my-app/1.0", "other"), (b"a b c d curl/8.5", "other"),
        (b"OpenAI/Python sk-secret", "openai-python"), (b"\xff\xfe", "other"), (b"curl/8.5\x00", "curl/8.5"),
    ],
)  # fmt: skip
def test_clients_are_told_by_words_that_are_known(agent: bytes | None, expected: str) -> None:
    assert word(agent) == expected


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(clients, "MOST_WORDS", 3)
    monkeypatch.setattr(clients, "_words", set())
    word.cache_clear()
    yield
    word.cache_clear()


def test_there_are_never_more_than_a_limit(few: None) -> None:
    found = {word(f"curl/{n}.{n}".encode()) for n in range(50)}
    assert found == {"curl/0.0", "curl/1.1", "curl/2.2", "curl"}
    assert word(b"curl/1.1.9") == "curl/1.1"


def test_no_more_than_the_beginning_of_it_is_remembered(proxied: Callable[..., World]) -> None:
    world = proxied()
    long = b"curl/8.5 " + b"x" * 10_000
    seen = world.frame.live.tenants.see([(b"authorization", b"Bearer a"), (b"user-agent", long)], b"", None)
    assert seen.agent == long[: clients.LONGEST]
    assert word(seen.agent) == "curl/8.5"


@given(st.binary(max_size=400))
def test_whatever_a_client_writes_is_a_safe_word(agent: bytes) -> None:
    found = word(agent)
    assert len(found) <= 32
    assert set(found) <= set("abcdefghijklmnopqrstuvwxyz0123456789-./")


@pytest.fixture
def seen(proxied: Callable[..., World]) -> Callable[..., Callable[..., str]]:
    """`seen(**settings)(**headers)`: the region that a request with these headers is attributed to."""

    def make(**settings: Any) -> Callable[..., str]:
        found: list[Attribution] = []

        async def look(asked: Asked, proxy: Proxy) -> Answered:
            found.append(attribution.current())
            return await echoed(asked, proxy)

        world = proxied({("POST", ECHO): look}, **settings)

        def ask(*more: tuple[str, str], **headers: str) -> str:
            sent = [*KEY.items(), *more, *((name.replace("_", "-"), value) for name, value in headers.items())]
            answer = world.client.post(ECHO, json={"model": "small", "text": "a"}, headers=sent)
            answer.raise_for_status()
            return found[-1].region

        ask.world = world  # type: ignore[attr-defined]
        return ask

    return make


def test_a_client_cannot_say_where_it_is(seen: Any) -> None:
    ask = seen()
    assert ask(x_mmcache_region="eu-west") == ""
    ask = seen(trust=TrustRules(front_token=TOKEN), telemetry=TelemetryRules(region="us-east"))
    assert ask() == ask(x_mmcache_region="eu-west") == "us-east"
    assert ask(cloudfront_viewer_country="DE") == "us-east"
    reached = ask.world.upstream.asked[-1]
    assert reached.header(b"x-mmcache-region") is None


def test_a_front_proxy_that_has_proved_itself_can(seen: Any) -> None:
    ask = seen(trust=TrustRules(front_token=TOKEN), telemetry=TelemetryRules(region="us-east"))
    assert ask(x_mmcache_region="EU-west-1", **FRONT) == "eu-west-1"
    assert ask(x_mmcache_region="ap", x_mmcache_tenant="acme", **FRONT) == "ap"
    assert ask(**FRONT) == "us-east"
    for wrong in ("", "a b", "a" * 33, "eu_west", "<b>", "é"):
        assert ask(("x-mmcache-region", wrong.encode()), **FRONT) == ""
    assert ask(("x-mmcache-region", "a"), ("x-mmcache-region", "b"), **FRONT) == ""


def test_a_wrong_token_or_place_is_refused_as_for_tenants(proxied: Callable[..., World]) -> None:
    world = proxied(trust=TrustRules(front_token=TOKEN))
    assert world.ask(x_mmcache_region="eu", x_mmcache_front_token="another").status_code == 403
    world = proxied(trust=TrustRules(front_token=TOKEN, front_networks=("10.0.0.0/8",)))
    assert world.ask(x_mmcache_region="eu", **FRONT).status_code == 403


def test_the_operators_header_counts_from_trusted_networks_only(seen: Any) -> None:
    rules = TrustRules(region_header="CloudFront-Viewer-Country")
    ask = seen(trust=rules, telemetry=TelemetryRules(region="none"))
    assert ask(cloudfront_viewer_country="DE") == "de"
    assert ask(("cloudfront-viewer-country", "DE"), ("cloudfront-viewer-country", "FR")) == ""
    assert ask(cloudfront_viewer_country="D E") == ""
    far = TrustRules(region_header="cloudfront-viewer-country", front_networks=("10.0.0.0/8",))
    assert seen(trust=far, telemetry=TelemetryRules(region="none"))(cloudfront_viewer_country="DE") == "none"


def test_a_front_proxys_word_goes_before_the_header(seen: Any) -> None:
    ask = seen(trust=TrustRules(front_token=TOKEN, region_header="x-country"))
    assert ask(x_country="de", x_mmcache_region="eu", **FRONT) == "eu"
    assert ask(x_country="de", x_mmcache_region="eu") == "de"


def test_the_header_is_part_of_the_realm_unless_it_is_harmless(seen: Any) -> None:
    for harmless, misses in ((), 2), (("X-Country",), 1):
        ask = seen(trust=TrustRules(region_header="x-country", harmless_headers=harmless))
        before = ask.world.upstream.count(ECHO)
        assert [ask(x_country="de"), ask(x_country="fr")] == ["de", "fr"]
        assert ask.world.upstream.count(ECHO) - before == misses
        assert ask.world.upstream.asked[-1].header(b"x-country") is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[trust]\nregion_header = "authorization"', "means nothing else"),
        ('[trust]\nregion_header = "X-MMCache-Tenant"', "means nothing else"),
        ('[trust]\nregion_header = "content-type"', "means nothing else"),
        ('[trust]\nregion_header = "a b"', "means nothing else"),
        ('[trust]\nregion_header = "cookie"', "means nothing else"),
        ('[telemetry]\nregion = "EU West"', "1 to 32 of a-z"),
        ("[telemetry]\nsample = 1.5", "sample"),
        ('[telemetry]\nsample = "1"', "sample"),
        ('[telemetry]\notlp = "localhost"', "otlp|address|http"),
        ('[telemetry]\nmetrics = "token"', "admin_token_env"),
        ('[telemetry]\nmetrics = "all"', "metrics"),
        ('[telemetry]\nservice = "a\\nb"', "service"),
        ("[telemetry]\nsamples = 1", "has no samples"),
    ],
)
def test_mistakes_in_the_settings_are_named(tmp_path: Any, text: str, told: str) -> None:
    path = tmp_path / "mmcache.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=told):
        read(path, upstream="http://a")


def test_the_settings(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mmcache.toml"
    path.write_text(
        '[telemetry]\notlp = "http://a:4318"\ntoken_env = "THERE"\nsample = 1\nservice = "front"\nregion = "eu"\n'
    )
    monkeypatch.setenv("THERE", "a token of the collector's")
    told = read(path, upstream="http://a").server.telemetry
    assert told == TelemetryRules("http://a:4318", "a token of the collector's", 1.0, "front", "eu")
    assert "collector's" not in repr(told)
    told = read(path, upstream="http://a", otlp="http://b", sample=0.5, region="us").server.telemetry
    assert (told.otlp, told.sample, told.region, told.service) == ("http://b", 0.5, "us", "front")
    monkeypatch.setenv("MMCACHE_OTLP", "http://c")
    assert read(None, upstream="http://a").server.telemetry.otlp == "http://c"


@pytest.mark.parametrize("where", ["flag", "file", "environment"])
def test_a_dashboard_takes_nothing_from_a_receiver_that_is_set(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmcache.cli.serve.companion", None)
    config = tmp_path / "mmcache.toml"
    config.write_text('[telemetry]\notlp = "http://c"\n' if where == "file" else "")
    if where == "environment":
        monkeypatch.setenv("MMCACHE_OTLP", "http://c")
    otlp = "http://c" if where == "flag" else None
    with pytest.raises(SettingsError, match="sends to http://c, give no --dashboard"):
        serve(upstream="http://localhost:1", config=config, dashboard=True, otlp=otlp)


def test_a_dashboard_that_has_the_store_already_can_be_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(command: object, again: object) -> None:
        raise SettingsError("another process has the store")

    monkeypatch.setattr("mmcache.cli.serve.companion", taken)
    monkeypatch.delenv("MMCACHE_OTLP", raising=False)
    with pytest.raises(SettingsError, match=r"has the store .*--otlp ITS_ADDRESS"):
        serve(upstream="http://localhost:1", dashboard=True)
