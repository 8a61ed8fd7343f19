"""Salts, scopes and the key file."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.keys.realm import RealmKeys, load_secret
from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.model.signature import Signature

KEYS = RealmKeys(bytes(range(32)))


def test_salts_and_scopes_are_stable_across_releases() -> None:
    salt = KEYS.salt("default", "default")
    assert salt.hex() == "009124f71df95103984aa289bdcb8c1b76cf2e44dba5696ab446c2d50fd6082b"
    assert KEYS.scope_of(salt, bytes(16)).hex() == "d37d4e64eb4bc7aea037c8b1088aa0db"


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_two_realms_never_share_a_salt(one: tuple[str, str], two: tuple[str, str]) -> None:
    for realm in (one, two):
        if any(0xD800 <= ord(letter) <= 0xDFFF for part in realm for letter in part):
            return
    assert (KEYS.salt(*one) == KEYS.salt(*two)) == (one == two)
    assert len(KEYS.salt(*one)) == 32


def test_the_border_between_tenant_and_namespace_counts() -> None:
    assert KEYS.salt("ab", "c") != KEYS.salt("a", "bc")
    assert KEYS.salt("", "ab") != KEYS.salt("ab", "")
    assert KEYS.salt("a\0b", "") != KEYS.salt("a", "b")


def test_other_secret_other_signature_other_realm_other_scope() -> None:
    salt, other = KEYS.salt("a", "x"), KEYS.salt("b", "x")
    one, two = Signature(model_version="1"), Signature(model_version="2")
    scopes = {KEYS.scope(s, g) for s in (salt, other) for g in (one, two)}
    scopes.add(RealmKeys(bytes(32)).scope(RealmKeys(bytes(32)).salt("a", "x"), one))
    assert len(scopes) == 5
    assert KEYS.scope(salt, one) == KEYS.scope_of(salt, one.digest)
    assert {len(scope) for scope in scopes} == {16}


def test_bad_parts_are_refused_and_the_secret_is_not_shown() -> None:
    with pytest.raises(InvalidInputError, match="surrogate"):
        KEYS.salt("\ud800", "x")
    with pytest.raises(SettingsError, match="32 bytes"):
        RealmKeys(b"short")
    assert bytes(range(32)).hex() not in repr(KEYS)


def test_the_key_file_is_made_once_and_only_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "new" / "realm.key"
    secret = load_secret(path)
    assert len(secret) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_secret(path) == secret
    assert RealmKeys.load(path).salt("a", "b") == RealmKeys(secret).salt("a", "b")
    assert [each.name for each in path.parent.iterdir()] == ["realm.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_key_file_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "realm.key"
    load_secret(path)
    path.chmod(mode)
    with pytest.raises(SettingsError, match="chmod 600"):
        load_secret(path)


def test_broken_key_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "realm.key"
    for content in (b"", bytes(31), bytes(33)):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(SettingsError, match="exactly 32"):
            load_secret(path)
    (tmp_path / "folder").mkdir(mode=0o700)
    with pytest.raises(SettingsError, match="folder"):
        load_secret(tmp_path / "folder")
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot read or create"):
        load_secret(tmp_path / "file" / "realm.key")


def _report(path: Path, start: object, queue: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    queue.put(load_secret(path))  # type: ignore[attr-defined]


def test_racing_processes_agree_on_one_secret(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    start, queue = context.Event(), context.Queue()
    racers = [context.Process(target=_report, args=(tmp_path / "realm.key", start, queue)) for _ in range(8)]
    for racer in racers:
        racer.start()
    start.set()
    assert len({queue.get(timeout=30) for _ in racers}) == 1
    for racer in racers:
        racer.join(timeout=30)
    assert os.listdir(tmp_path) == ["realm.key"]
