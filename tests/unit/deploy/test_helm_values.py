"""Values that the chart does not know, or that contradict each other, are refused with words that say where."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from tests.unit.deploy.chart import CHART, needs_helm, template
from tests.unit.deploy.kit import jsonschema, yaml

pytest.importorskip("uvicorn")

from mmcache.config_file import CONFIGURABLE, SHARED
from mmcache.operator.crd import definition
from mmcache.server import settings_file

SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
REFUSED: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "unknown": ({"proxi": {}}, "Additional property proxi is not allowed"),
    "unknown below": ({"proxy": {"service": {"prt": 1}}}, "proxy.service: Additional property prt"),
    "unknown of the proxy": ({"proxy": {"config": {"server": {"prot": 1}}}}, "config.server: Additional property prot"),
    "unknown table": ({"proxy": {"config": {"sever": {}}}}, "proxy.config: Additional property sever"),
    "unknown of the cluster's": ({"cluster": {"spec": {"minShard": 3}}}, "cluster.spec: Additional property minShard"),
    "watch": ({"operator": {"watch": "all"}}, "operator.watch"),
    "latest": ({"image": {"tag": "latest"}}, "image.tag"),
    "digest": ({"image": {"digest": "0123"}}, "image.digest"),
    "v1": ({"proxy": {"upstream": {"url": "http://vllm:8000/v1"}}}, "proxy.upstream.url"),
    "a user in the address": ({"proxy": {"upstream": {"url": "http://me:word@vllm:8000"}}}, "proxy.upstream.url"),
    "port": ({"proxy": {"service": {"port": 70000}}}, "proxy.service.port"),
    "quantity": ({"proxy": {"folderSize": "six"}}, "proxy.folderSize"),
    "secret in plain": ({"auth": {"password": "word"}}, "auth: Additional property password"),
    "no upstream": ({"proxy": {"upstream": {"url": ""}}}, "say what stands behind the proxy"),
    "shards": ({"cluster": {"spec": {"minShards": 7}}}, "cluster.spec.maxShards (6) must be at least minShards (7)"),
    "pods": (
        {"proxy": {"autoscaling": {"enabled": True, "minReplicas": 20}}},
        "proxy.autoscaling.minReplicas (20) must be at most maxReplicas (10)",
    ),
    "an authority, and nothing to trust": (
        {"proxy": {"sharedTls": {"authority": {"existingSecret": "tls"}}}},
        "proxy.sharedTls: what proxies share speaks no TLS",
    ),
    "a certificate for plain words": (
        {"proxy": {"sharedTls": {"client": {"existingSecret": "tls"}},
                   "config": {"cache": {"shared": {"url": "valkey+sentinel://one/main"}}}}},
        "proxy.sharedTls: what proxies share speaks no TLS",
    ),
    "a name for nobody": (
        {"cluster": {"enabled": False}, "proxy": {"sharedTls": {"name": "cache"}}},
        "proxy.sharedTls: what proxies share speaks no TLS",
    ),
    "two authorities": (
        {"proxy": {"sharedTls": {"authority": {"existingSecret": "a", "existingConfigMap": "b"}}}},
        "proxy.sharedTls.authority: Must not validate",
    ),
    "a key with a path": (
        {"proxy": {"sharedTls": {"authority": {"key": "../ca.crt"}}}}, "proxy.sharedTls.authority.key",
    ),
    "a name that is an address": ({"proxy": {"sharedTls": {"name": "valkeys://cache"}}}, "proxy.sharedTls.name"),
    "an authority in plain": ({"proxy": {"sharedTls": {"ca": "-----BEGIN"}}}, "sharedTls: Additional property ca"),
    "a password in a ConfigMap": (
        {"proxy": {"config": {"cache": {"shared": "valkeys://me:word@cache"}}}}, "proxy.config.cache.shared",
    ),
    "a password in a table": (
        {"proxy": {"config": {"cache": {"shared": {"url": "valkeys://cache", "password": "word"}}}}},
        "cache.shared: Additional property password",
    ),
    "the pods port": ({"proxy": {"config": {"server": {"port": 80}}}}, "proxy.config.server.port is 8090 in the pod"),
}  # fmt: skip


@needs_helm
@pytest.mark.parametrize("values", REFUSED)
def test_what_is_wrong_is_refused_and_said(values: str) -> None:
    wrong, said = REFUSED[values]
    done = template(wrong)
    assert done.returncode != 0
    assert said in done.stderr


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert not list(jsonschema.Draft7Validator(SCHEMA).iter_errors(VALUES))


def objects(schema: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            yield path, schema
            for name, below in schema["properties"].items():
                yield from objects(below, f"{path}.{name}")
        for name in ("items", "additionalProperties"):
            yield from objects(schema.get(name), f"{path}[]")


def test_every_table_is_closed() -> None:
    for path, schema in objects(SCHEMA):
        assert schema["additionalProperties"] is False, path


def test_every_value_stands_in_both() -> None:
    def named(values: Any, schema: Any, path: str) -> None:
        free = path in (".proxy.config", ".cluster.spec") or not isinstance(values, dict)
        if free or "properties" not in schema:
            return
        assert values.keys() == schema["properties"].keys() - {"global"}, path
        for name, value in values.items():
            below = schema["properties"][name]
            named(value, below, f"{path}.{name}")

    named(VALUES, SCHEMA, "")


def test_the_proxys_tables_are_the_proxys() -> None:
    tables = SCHEMA["properties"]["proxy"]["properties"]["config"]["properties"]
    assert tables.keys() == set(settings_file.TABLES)
    for name, known in (
        ("server", settings_file.SERVER), ("upstream", settings_file.UPSTREAM), ("trust", settings_file.TRUST),
        ("fetch", settings_file.FETCH), ("telemetry", settings_file.TELEMETRY), ("cache", CONFIGURABLE),
    ):  # fmt: skip
        assert tables[name]["properties"].keys() == set(known), name
    assert tables["cache"]["properties"]["shared"]["properties"].keys() == set(SHARED)
    assert tables["routes"]["additionalProperties"]["properties"].keys() == set(settings_file.ROUTE)


def test_the_clusters_fields_are_the_definitions() -> None:
    (version,) = definition()["spec"]["versions"]
    there = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    ours = SCHEMA["properties"]["cluster"]["properties"]["spec"]["properties"]
    del there["authSecretRef"]  # values.auth says it, to all that need it
    assert {name: told.get("type", ["integer", "string"]) for name, told in there.items()} == {
        name: told["type"] for name, told in ours.items()
    }
