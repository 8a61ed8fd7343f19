"""The laboratory's Kubernetes: where pods go, how their words are read, which server an image is, what is fetched."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmcache.lab.kubernetes import build, sources
from mmcache.lab.kubernetes.__main__ import main
from mmcache.lab.kubernetes.images import Images
from mmcache.lab.kubernetes.kubelet import Kubelet
from mmcache.lab.kubernetes.scheduler import choose, selects
from mmcache.lab.kubernetes.volumes import Words, expand
from mmcache.model.errors import AssetError
from mmcache.scale.binaries import Binary

HOST = "kubernetes.io/hostname"


def machine(name: str, taints: list[dict[str, str]] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {HOST: name}}, "spec": {**spec, "taints": taints or []}}


def pod(name: str, at: str | None = None, label: str = "a", **spec: Any) -> dict[str, Any]:
    placed = {"nodeName": at} if at else {}
    return {"metadata": {"name": name, "namespace": "n", "labels": {"app": label}}, "spec": {**placed, **spec}}


def apart(kind: str = "podAntiAffinity", label: str = "a") -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": label}}, "topologyKey": HOST}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


MACHINES = [machine("one"), machine("two"), machine("three")]


def test_the_emptiest_machine_is_taken() -> None:
    assert choose(pod("x"), MACHINES, [pod("y", "one"), pod("z", "two")]) == ("three", "")


def test_two_that_must_be_apart_are_apart() -> None:
    there = [pod("y", "one", **apart()), pod("z", "two", label="b")]
    assert choose(pod("x", **apart()), MACHINES[:2], there)[0] == "two"
    assert choose(pod("x"), MACHINES[:2], there)[0] == "two"  # the other one does not want it
    none, why = choose(pod("x", **apart()), MACHINES[:1], there)
    assert none is None
    assert why == "0/1 nodes are available: 1 node(s) didn't match pod affinity/anti-affinity."


def test_two_that_must_be_together_are_together() -> None:
    wanted = pod("x", **apart("podAffinity"))
    assert choose(wanted, MACHINES, [pod("y", "two")])[0] == "two"
    assert choose(wanted, MACHINES, [])[0] == "one"
    assert choose(pod("x", label="c", **apart("podAffinity")), MACHINES, [])[0] is None


def test_a_list_that_is_read_again_ends_no_pod() -> None:
    """The watch may break off at any moment; between the list and the next event the machines do a turn."""
    machines = Kubelet(SimpleNamespace(admin=None), Path("none"), 1, Images(Path("none")), 1)  # type: ignore[arg-type]
    one, two, three = ({**pod(name), "metadata": {"name": name, "uid": name}} for name in ("one", "two", "three"))
    machines._learn("ANEW", {"items": [one, two]})
    machines._learn("MODIFIED", {**two, "spec": {"changed": True}})
    machines._learn("ADDED", three)
    machines._learn("DELETED", one)
    assert set(machines._pods) == {"two", "three"}
    machines._learn("ANEW", {"items": [two]})
    assert machines._pods == {"two": two}


@pytest.mark.parametrize(
    ("tolerations", "taken"),
    [
        ([], False),
        ([{"operator": "Exists"}], True),
        ([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}], True),
        ([{"key": "k", "value": "v"}], True),
        ([{"key": "k", "value": "w"}], False),
        ([{"key": "k", "value": "v", "effect": "NoExecute"}], False),
    ],
    ids=["none", "all", "key", "value", "other value", "other effect"],
)
def test_a_taint_keeps_away_who_does_not_bear_it(tolerations: list[dict[str, str]], taken: bool) -> None:
    tainted = machine("one", [{"key": "k", "value": "v", "effect": "NoSchedule"}])
    assert (choose(pod("x", tolerations=tolerations), [tainted], [])[0] == "one") is taken


def test_a_closed_machine_and_one_of_another_kind_are_passed_over() -> None:
    assert choose(pod("x"), [machine("one", unschedulable=True)], [])[1].endswith("1 node(s) were unschedulable.")
    assert choose(pod("x", nodeSelector={HOST: "two"}), MACHINES, [])[0] == "two"
    assert choose(pod("x", nodeSelector={HOST: "four"}), MACHINES, [])[0] is None


def test_selectors() -> None:
    rule = {"key": "app", "operator": "In", "values": ["a", "b"]}
    assert selects({}, pod("x"))
    assert not selects(None, pod("x"))
    assert selects({"matchExpressions": [rule]}, pod("x"))
    assert not selects({"matchExpressions": [{**rule, "operator": "NotIn"}]}, pod("x"))
    assert selects({"matchExpressions": [{"key": "no", "operator": "DoesNotExist"}]}, pod("x"))


def test_paths_and_addresses_are_read_as_they_are_here() -> None:
    words = Words({"/etc/app": Path("/real/one"), "/etc/app-more": Path("/real/two")}, "127.1.0.9")
    assert words.read("cat /etc/app/x '/etc/app-more/y' --dir=/etc/app") == (
        "cat /real/one/x '/real/two/y' --dir=/real/one"
    )
    assert words.read("/other/etc/app /etc/application") == "/other/etc/app /etc/application"
    assert words.read("--bind 0.0.0.0:80 0.0.0.0/0 10.0.0.0.0") == "--bind 127.1.0.9:80 0.0.0.0/0 10.0.0.0.0"
    assert Words({}, "127.1.0.9").read("/etc/app") == "/etc/app"


def test_variables_are_put_in_as_kubernetes_does() -> None:
    assert expand("$(A)/$(B)/$$(A)/$A", {"A": "1"}) == "1/$(B)/$(A)/$A"


def test_an_image_is_a_server_or_mmcache_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def server(name: str, *version: int) -> Binary:
        return Binary(name, (version[0], version[1], 0), tmp_path / f"{name}-server", "test", False)

    known = (server("valkey", 9, 1), server("redis", 7, 0), server("redis", 6, 2))
    monkeypatch.setattr("mmcache.lab.kubernetes.images.binaries", lambda: known)
    images = Images(tmp_path / "images")
    made: list[Binary] = []

    def programs(_: Images, __: str, chosen: Binary) -> Path:
        made.append(chosen)
        return tmp_path

    monkeypatch.setattr(Images, "_programs", programs)
    for name in ("valkey/valkey:9.1", "redis:7.0-alpine", "valkey/valkey:8.1@sha256:00", "host:5000/redis:6.2"):
        found = images.pulled(name)
        assert found is not None
        assert found.entrypoint == ("valkey-server",)
    assert made == [known[0], known[1], known[1], known[2]]
    ours = images.pulled("registry/team/mmcache:1")
    assert ours is not None
    assert ours.entrypoint == ("mmcache",)
    assert images.pulled("nginx:1") is None


DEB822 = """Types: deb
URIs: http://mirror/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://elsewhere
Suites: nodistro
Components: main
"""


def test_only_this_releases_own_lists_are_asked_for_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "debian.sources").write_text(DEB822)
    (parts / "gone.sources.disabled").write_text(DEB822)
    (tmp_path / "sources.list").write_text(
        "# deb x\ndeb [signed-by=/k] http://m bookworm main\ndeb http://m stable main\n"
    )
    monkeypatch.setattr(sources, "_APT", tmp_path)
    monkeypatch.setattr(sources, "_release", lambda: "bookworm")
    found = sources.machine_lists()
    assert set(found) == {"debian.sources", "sources.list"}
    assert found["debian.sources"].startswith("Types: deb deb-src\n")
    assert "elsewhere" not in found["debian.sources"]
    assert found["sources.list"].splitlines() == [
        "deb [signed-by=/k] http://m bookworm main", "deb-src [signed-by=/k] http://m bookworm main",
    ]  # fmt: skip


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(AssetError, match=r"run `python -m mmcache\.lab\.kubernetes`"):
        build.find()
    there = {"dpkg-source": None}
    monkeypatch.setattr("mmcache.lab.kubernetes.sources.shutil.which", lambda tool: there.get(tool, f"/bin/{tool}"))
    assert main([]) == 3
    assert "dpkg-source, which is not here" in capsys.readouterr().err
    assert main(["--what"]) == 2
    assert not list(tmp_path.rglob("*"))


def test_what_was_built_is_found_and_what_was_changed_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = build.place()
    folder.mkdir(parents=True)
    for name in build.SERVERS:
        (folder / name).write_text(name)
    told = {"version": build.VERSION, "bytes": {name: len(name) for name in build.SERVERS}}
    (folder / "manifest.json").write_text(json.dumps(told))
    assert build.find().manifest["version"] == build.VERSION
    assert build.build()["etcd"] == folder / "etcd"
    (folder / "etcd").write_text("only half of it")
    with pytest.raises(AssetError, match="is not what was built"):
        build.find()
