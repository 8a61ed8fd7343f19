"""`[cache.shared]`: the shared tier as a table, with certificates; without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmcache.config_file import SHARED, read_config
from mmcache.model.errors import SettingsError
from mmcache.settings import SharedSettings

URL = 'url = "valkeys://one:6379?cluster=true"'


def read(tmp_path: Path, table: str) -> SharedSettings:
    path = tmp_path / "mmcache.toml"
    path.write_text(f'[cache]\nmemory = "1GiB"\n[cache.shared]\n{table}\n')
    found = read_config(path)
    assert found.pop("memory") == "1GiB"
    shared = found.pop("shared")
    assert isinstance(shared, SharedSettings)
    assert not found
    return shared


def test_the_shared_tier_may_be_a_table(tmp_path: Path) -> None:
    told = f'{URL}\ntls_ca = "/ca"\ntls_name = "one"\nchunk_bytes = "256KiB"\nreplica_reads = true\nlease_seconds = 2'
    assert read(tmp_path, told) == SharedSettings(
        "valkeys://one:6379?cluster=true", tls_ca="/ca", tls_name="one", chunk_bytes=256 << 10, replica_reads=True,
        lease_seconds=2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('tls_ca = "/ca.crt"', "says where"),
        (f'{URL}\npassword = "word"', "has no password"),
        (f'{URL}\ntls_cs = "/ca.crt"', "has no tls_cs; it takes .*tls_ca"),
        (f"{URL}\ntls_ca = 1", "tls_ca is of type str"),
        ('url = ["valkeys://:word@one"]', "url is of type str"),
        (f'{URL}\nconnections = "many"', "connections is of type int"),
        (f"{URL}\nconnections = true", "connections is of type int"),
        (f"{URL}\nreplica_reads = 1", "replica_reads is of type bool"),
        (f"{URL}\ntimeout_seconds = 0", "timeout_seconds is a number above 0"),
        (f'{URL}\nchunk_bytes = "some"', "not a size"),
    ],
)
def test_what_is_wrong_with_it_is_said_without_what_may_be_secret(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as found:
        read(tmp_path, table)
    assert ":word@" not in str(found.value)


def test_each_field_but_the_password_can_be_said() -> None:
    assert set(SharedSettings.__dataclass_fields__) - set(SHARED) == {"password"}
    assert {kind.removesuffix(" | None") for kind in SHARED.values()} == {"str", "int", "float", "bool"}
