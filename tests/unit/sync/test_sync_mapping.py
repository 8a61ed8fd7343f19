"""The mapping file, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmcache.model.errors import SettingsError
from mmcache.sync.mapping import Secret, Table, read, tables_of

pytest.importorskip("yaml", reason="needs mmcache[sync]")

GOOD = """\
kafka:
  bootstrap: "localhost:9092"
  topics: [shop.public.products, "^shop\\\\.public\\\\.ord.*"]
  options: {security.protocol: SASL_SSL, sasl.password: {env: KAFKA_PASSWORD}, fetch.wait.max.ms: 5}
shared: "valkey://localhost:6379?cluster=true"
secret_file: /etc/mmcache/realm.key
replicas: 1
tables:
  public.products:
    key: [id]
    groups: {photo: [photo_url, photo_sha], text: [title, photo_sha]}
  public.orders: {key: [shop, number], name: sales, refresh: "shop.jobs:again"}
"""


def made(folder: Path, text: str) -> Path:
    path = folder / "sync.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(made(tmp_path, GOOD))
    assert found.tables["public.products"].name == "products"
    assert found.tables["public.orders"].name == "sales"
    assert found.tables["public.products"].groups["text"] == ("title", "photo_sha")
    assert found.settings.url == "valkey://localhost:6379?cluster=true"
    password = found.kafka.options["sasl.password"]
    assert isinstance(password, Secret)
    monkeypatch.setenv("KAFKA_PASSWORD", "hush")
    assert password.value() == "hush"


def test_secrets_in_files_and_missing_ones(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("hush\n", encoding="utf-8")
    assert Secret(file=str(tmp_path / "word")).value() == "hush"
    for wrong in (
        Secret(),
        Secret(env="A", file="b"),
        Secret(env="MMCACHE_NOT_SET"),
        Secret(file=str(tmp_path / "no")),
    ):
        with pytest.raises(SettingsError):
            wrong.value()


def test_shared_by_its_fields(tmp_path: Path) -> None:
    text = GOOD.replace('"valkey://localhost:6379?cluster=true"', "{url: valkey://a, prefix: 'x:', timeout_seconds: 2}")
    assert read(made(tmp_path, text)).settings.prefix == "x:"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("replicas: 1", "replica: 1", "unknown field `replica`"),
        ("replicas: 1", "replicas: -1", "0 or more"),
        ("replicas: 1", "replicas: one", "Expected `int`"),
        ("replicas: 1", "replicas: 1\nreplicas: 2", "line 8: replicas stands there twice"),
        ("  public.orders:", "  public.products:", "line 12: public.products stands there twice"),
        ("name: sales", "name: products", "two are called products"),
        ("key: [id]", "keys: [id]", "unknown field `keys`"),
        ("key: [id]", "key: []", "public.products: key names"),
        ("key: [id]", "key: id", "Expected `array`, got `str`"),
        ("photo: [photo_url, photo_sha]", "photo: []", "a group has a name"),
        ("photo: [photo_url", "'*': [photo_url", "a group has a name"),
        ("shop.jobs:again", "shop.jobs", "package.module:function"),
        ("fetch.wait.max.ms: 5", "enable.auto.commit: true", "enable.auto.commit is set by mmcache"),
        ("fetch.wait.max.ms: 5", "bootstrap.servers: x", "bootstrap.servers is set by mmcache"),
        ('bootstrap: "localhost:9092"', 'bootstrap: ""', "bootstrap, topics and group"),
        ('shared: "valkey://localhost:6379?cluster=true"', "shared: {uri: x}", "fields of SharedSettings"),
        ("replicas: 1", "resnapshot: {topic: signals}", "resnapshot is either"),
        ("replicas: 1", "stale_after: 0", "above 0"),
        ("replicas: 1", "stale_after: .nan", "above 0"),
        ("replicas: 1", "on_poison: die", "Invalid enum value 'die'"),
        ("kafka:", "kafka: [", "no YAML"),
        ("ord.*", "ord[", "is no regular expression: unterminated character set"),
        ("  public.orders:", "  orders:", "orders: name it with its schema or database, as public.orders"),
        (', "^shop\\\\.public\\\\.ord.*"', "", "public.orders: no topic of kafka.topics carries it"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert old in GOOD
    with pytest.raises(SettingsError) as caught:
        read(made(tmp_path, GOOD.replace(old, new, 1)))
    assert why in str(caught.value)
    assert "sync.yaml" in str(caught.value)


def test_what_is_no_yaml_is_not_shown(tmp_path: Path) -> None:
    """It may hold a password."""
    with pytest.raises(SettingsError, match="line 5 is no YAML") as caught:
        read(made(tmp_path, GOOD.replace('//localhost:6379?cluster=true"', '//:hush@localhost:6379" x')))
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("text", ["", "[]", "a: b", "\0"])
def test_what_is_no_mapping_at_all(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"sync\.yaml"):
        read(made(tmp_path, text))


def test_a_mapping_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read"):
        read(tmp_path / "none.yaml")


def test_which_tables_a_topic_may_carry() -> None:
    tables = {
        "public.products": Table(key=("id",)),
        "public.Odd Name": Table(key=("id",)),
        "public.moved": Table(key=("id",), topics=("elsewhere",)),
    }
    assert tables_of("shop.public.products", tables) == ("public.products",)
    assert tables_of("shop.public.Odd_Name", tables) == ("public.Odd Name",)
    assert tables_of("__debezium-heartbeat.shop", tables) == ()
    assert tables_of("elsewhere", tables) == ("public.moved",)
    assert tables_of("shop.public.moved", tables) == tuple(tables)
    assert tables_of("notpublic.products", tables) == tuple(tables)
