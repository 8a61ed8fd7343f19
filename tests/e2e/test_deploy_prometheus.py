"""The kit's rules in a real Prometheus that looks at a real `mmcache serve`: a model's version changes while it runs,
the alert fires, and when the new answers are stored it clears. Minutes are made shorter, nothing else is changed."""

from __future__ import annotations

import itertools
import json
import re
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("uvloop")
pytest.importorskip("opentelemetry.proto")

from tests.e2e.deploy_stage import PROMETHEUS, prometheus, receiver, until
from tests.e2e.test_serve import EMBEDDINGS, embed, serving
from tests.unit.deploy.kit import board_expressions, names_in, of_the_operator, plain, promtool, reference, rules
from tests.unit.deploy.test_loki import stage
from tests.unit.server.upstream import Upstream, served

from mmcache.lab import servers
from mmcache.model.errors import AssetError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus: install Debian's package of that name"),
]
FASTER = 8
ALERT = "MmcacheSignatureMisses"
TEXTS = [f"text {number}" for number in range(600)]


def read(address: str, accept: str = "text/plain") -> str:
    asked = urllib.request.Request(f"{address}/metrics", headers={"accept": accept})
    with urllib.request.urlopen(asked, timeout=60) as reply:
        return str(reply.read().decode())


def ask(address: str, texts: list[str]) -> str:
    body = json.dumps({"model": "small", "input": texts, "encoding_format": "float"}).encode()
    headers = {"content-type": "application/json", "authorization": "Bearer sk-one"}
    with urllib.request.urlopen(urllib.request.Request(address + EMBEDDINGS, body, headers), timeout=60) as reply:
        assert len(json.load(reply)["data"]) == len(texts)
        return str(reply.headers["x-mmcache"]).partition(";")[0]


def configure(folder: Path, upstream: str, version: str) -> Path:
    path = folder / "mmcache.toml"
    path.write_text(f'[upstream]\nurl = "{upstream}"\nversion = "{version}"\n', encoding="utf-8")
    return path


def test_an_alert_fires_when_signatures_change_and_clears_when_the_new_ones_are_stored(tmp_path: Path) -> None:
    app = Upstream()
    app.on(EMBEDDINGS, embed)
    with served(app) as behind:
        config = configure(tmp_path, behind, "1")
        with (
            serving("--config", str(config), cwd=tmp_path) as proxy,
            prometheus(proxy.address.removeprefix("http://"), tmp_path / "prometheus", FASTER) as watch,
        ):
            assert ask(proxy.address, TEXTS) == "miss"
            until(lambda: watch.value("instance:mmcache_lookups:rate5m") is not None, "what is recorded of it")
            until(lambda: watch.firing() is not None, "alerts")
            assert ALERT not in (watch.firing() or ())

            configure(tmp_path, behind, "2")
            proxy.process.send_signal(signal.SIGHUP)
            assert "version" in proxy.until("reloaded")["changed"]
            stored = iter(range(0, len(TEXTS), 5))

            def miss() -> None:
                place = next(stored, None)
                if place is not None:
                    ask(proxy.address, TEXTS[place : place + 5])

            miss()  # its counter is born: a rate is seen from the second look on
            until(lambda: watch.value('sum(mmcache_lookups_total{reason="signature"})'), "the first of the reason")

            def fired() -> Any:
                miss()
                return watch.value(f'max_over_time(ALERTS{{alertname="{ALERT}", alertstate="firing"}}[1h])')

            until(fired, "the alert")
            for place in stored:
                ask(proxy.address, TEXTS[place : place + 5])
            again = itertools.cycle(range(0, len(TEXTS), 5))

            def clear() -> bool:
                place = next(again)
                ask(proxy.address, TEXTS[place : place + 5])
                fires = watch.firing()
                return fires is not None and ALERT not in fires

            until(clear, "all clear")
            until(lambda: ask(proxy.address, TEXTS) == "hit", "all of it is stored anew")
            groups = watch.ask("rules")["groups"]
            assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok"}


def test_every_panel_of_the_board_shows_something_of_a_proxy_that_works(tmp_path: Path) -> None:
    """But for those of what did not happen to it, and of what the operator tells."""
    names = "evictions|refusals|expirations|invalidations|failures|checks"
    unusual = re.compile(f'ALERTS|mmcache_({names})_total|mmcache_(cluster|operator)_|reason!="absent"')
    left = {plain(expression) for expression in board_expressions() if not unusual.search(expression)}
    assert len(left) > 20
    app = Upstream()
    app.on(EMBEDDINGS, embed)
    with (
        served(app) as behind,
        receiver() as end,
        serving(
            "--upstream", behind, "--otlp", end.address, "--sample", "1", "--region", "eu", cwd=tmp_path
        ) as proxy,
        prometheus(proxy.address.removeprefix("http://"), tmp_path / "prometheus", FASTER) as watch,
    ):  # fmt: skip
        asked = itertools.count()

        def shown() -> bool:
            """Texts are asked twice: every second request is a hit."""
            ask(proxy.address, [f"text {next(asked) // 2}"])
            left.difference_update([expression for expression in left if watch.value(expression) is not None])
            return not left

        try:
            until(shown, "something on every panel")
        except AssertionError as empty:
            raise AssertionError(f"nothing of {left}") from empty


def test_what_the_rules_and_the_board_read_is_told_by_the_proxy(tmp_path: Path) -> None:
    """Families are told before anything happened, in both formats; and promtool has nothing to say against them."""
    app = Upstream()
    app.on(EMBEDDINGS, embed)
    with served(app) as behind, serving("--upstream", behind, cwd=tmp_path) as proxy:
        ask(proxy.address, ["a", "b"])
        ask(proxy.address, ["a"])
        text = read(proxy.address)
        told = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
        ours = {name: series for name, series in reference().items() if name not in of_the_operator()}
        for name, series in ours.items():
            family = re.sub(r"_(bucket|sum|count)$", "", name) if series.kind == "histogram" else name
            assert told[family] == series.kind
        assert names_in(" ".join(rule["expr"] for rule in rules())) & set(told)
        for name, labels in re.findall(r"^(mmcache_[a-z_]+)\{([^}]*)\}", text, re.M):
            assert set(re.findall(r'([a-z_]+)="', labels)) <= reference()[name].labels
        assert read(proxy.address, "application/openmetrics-text; version=1.0.0").endswith("# EOF\n")
        promtool("check", "metrics", cwd=tmp_path, text=text)


def test_the_access_log_has_what_loki_is_told_to_take_out(tmp_path: Path) -> None:
    app = Upstream()
    app.on(EMBEDDINGS, embed)
    with served(app) as behind, serving("--upstream", behind, cwd=tmp_path) as proxy:
        ask(proxy.address, ["a", "b"])
        read(proxy.address)
        until(lambda: [line for line in proxy.lines if line.get("route") == EMBEDDINGS], "the line of the request")
        (line,) = (line for line in list(proxy.lines) if line.get("route") == EMBEDDINGS)
        assert line.keys() == set(stage("json")) - {"event"}
        assert {name: line[name] for name in stage("labels")} == {"route": EMBEDDINGS, "outcome": "miss"}


def test_an_alert_fires_while_the_shared_tier_is_dead_and_clears_when_it_is_back(tmp_path: Path) -> None:
    """No request fails meanwhile, and nothing else pages: the proxy itself is well."""
    app = Upstream()
    app.on(EMBEDDINGS, embed)
    try:
        started = servers.server(tmp_path / "valkey", binary=servers.choose("valkey", 9))
    except AssetError as missing:
        pytest.skip(str(missing))
    with (
        served(app) as behind,
        started as valkey,
        serving("--upstream", behind, "--shared", valkey.url, cwd=tmp_path) as proxy,
        prometheus(proxy.address.removeprefix("http://"), tmp_path / "prometheus", FASTER) as watch,
    ):
        asked = itertools.count()

        def miss() -> None:
            assert ask(proxy.address, [f"text {next(asked)}"]) == "miss"

        def looked() -> bool:
            miss()
            return bool(watch.value("sum(instance:mmcache_lookups:rate5m)")) and watch.firing() is not None

        until(looked, "what is recorded of it, and alerts")
        assert not {"MmcacheTierDown", "MmcacheDown"} & (watch.firing() or set())
        valkey.kill()

        def fired() -> bool:
            miss()
            return "MmcacheTierDown" in (watch.firing() or ())

        until(fired, "the alert")
        assert "MmcacheDown" not in (watch.firing() or ())
        valkey.restart()

        def clear() -> bool:
            miss()
            fires = watch.firing()
            return fires is not None and "MmcacheTierDown" not in fires

        until(clear, "all clear")
