"""What Kubernetes is asked to run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.operator.wishes import resource, wish

from mmcache.operator import manifests, pods, scripts
from mmcache.operator.conf import valkey_conf
from mmcache.operator.names import LONGEST_NAME, TEMPLATE, pod
from mmcache.operator.resource import faults, understood

SECRETS = {"authSecretRef": {"name": "secret"}, "tls": {"secretName": "certificates"}}
VERSIONS = ("1.26", "1.33")


def everything(**spec: Any) -> list[dict[str, Any]]:
    found = wish(**spec)
    return [manifests.nodes_service(found), manifests.service(found), manifests.settings(found),
            manifests.disruption_budget(found), manifests.baseline(found, "{}"), pods.shard(found, 0, 2)]  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("spec", [{}, SECRETS | {
    "replicas": 2, "resources": {"limits": {"memory": "1Gi"}}, "nodeSelector": {"a": "b"},
    "tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": {}}, "priorityClassName": "high",
    "imagePullSecrets": [{"name": "registry"}], "imagePullPolicy": "Always", "podAnnotations": {"a": "b"},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
}], ids=["least", "most"])  # fmt: skip
def test_all_of_it_fits_kubernetes_schemas(version: str, spec: dict[str, Any]) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    for thing in everything(**spec):
        validate.validate(thing, version, strict=True)


def test_all_of_it_goes_with_its_resource() -> None:
    for thing in everything():
        (owner,) = thing["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (
            "MultimodalCache", "shared", "u-1", True,
        )  # fmt: skip


def test_the_hash_is_the_same_in_every_process_and_for_every_order() -> None:
    def of(**spec: Any) -> str:
        return str(pods.template(wish(**spec), 1)["metadata"]["labels"][TEMPLATE])

    found = of(nodeSelector={"a": "1", "b": "2"})
    assert found == of(nodeSelector={"b": "2", "a": "1"})
    probe = (
        "from tests.unit.operator.wishes import wish; from mmcache.operator import pods, names; "
        "print(pods.template(wish(nodeSelector={'a': '1', 'b': '2'}), 1)['metadata']['labels'][names.TEMPLATE])"
    )
    for seed in ("1", "2"):
        said = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True,
                              cwd=Path(__file__).parents[3], env={**os.environ, "PYTHONHASHSEED": seed})  # fmt: skip
        assert said.stdout.strip() == found


def test_the_hash_changes_with_all_that_a_pod_is_made_from() -> None:
    specs: list[dict[str, Any]] = [
        {}, {"image": "valkey/valkey:9.1"}, {"memory": "1Gi"}, {"config": {"io-threads": "2"}},
        {"nodeTimeoutSeconds": 7}, {"resources": {"limits": {"memory": "9Gi"}}}, {"authSecretRef": {"name": "other"}},
        {"podAnnotations": {"a": "b"}}, {"antiAffinity": "Preferred"},
    ]  # fmt: skip
    hashes = [pods.template(wish(**spec), 0)["metadata"]["labels"][TEMPLATE] for spec in specs]
    assert len(set(hashes)) == len(specs)


def test_the_hash_does_not_change_with_what_pods_have_no_part_in() -> None:
    before = pods.template(wish(), 0)
    for spec in ({"maxShards": 9}, {"replicas": 3}, {"qpsThreshold": 3}, {"burst": {"factor": 4}}, {"drainSeconds": 1}):
        assert pods.template(wish(**spec), 0) == before


def test_two_nodes_of_a_shard_are_never_on_one_machine() -> None:
    (never,) = pods.template(wish(), 4)["spec"]["affinity"]["podAntiAffinity"][pods._REQUIRED]
    assert never["topologyKey"] == "kubernetes.io/hostname"
    labels = pods.template(wish(), 4)["metadata"]["labels"]
    assert never["labelSelector"]["matchLabels"].items() <= labels.items()
    assert not never["labelSelector"]["matchLabels"].items() <= pods.template(wish(), 5)["metadata"]["labels"].items()
    assert pods._REQUIRED not in pods.template(wish(antiAffinity="Preferred"), 4)["spec"]["affinity"]["podAntiAffinity"]


def test_a_users_affinity_stays_and_is_not_changed() -> None:
    term = {"labelSelector": {}, "topologyKey": "rack"}
    given = {"podAntiAffinity": {pods._REQUIRED: [term]}}
    found = pods.template(wish(affinity=given), 0)["spec"]["affinity"]["podAntiAffinity"][pods._REQUIRED]
    assert found[0] == term
    assert len(found) == 2
    assert given == {"podAntiAffinity": {pods._REQUIRED: [term]}}


def test_a_pod_may_do_nothing_that_it_need_not() -> None:
    found = pods.template(wish(), 0)["spec"]
    (container,) = found["containers"]
    assert found["securityContext"]["runAsNonRoot"]
    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert not found["automountServiceAccountToken"]


def test_no_secret_is_in_a_pods_environment_or_commands() -> None:
    (container,) = pods.template(wish(**SECRETS), 0)["spec"]["containers"]
    assert [one["name"] for one in container["env"]] == ["POD_IP", "NODE_WAIT_SECONDS"]
    assert "exec" in container["command"][2]
    assert "requirepass" not in str(container)


def test_names_stay_below_what_kubernetes_takes() -> None:
    longest = "n" * LONGEST_NAME
    assert len(pod(longest, 499, 5)) <= 63
    assert len(f"{longest}-shard-499-0123456789") <= 63  # the label controller-revision-hash
    understood(resource({}, longest))


def test_a_replica_is_filled_over_a_file_that_may_be_as_large_as_it_must_and_is_gone_afterwards() -> None:
    """As when it was primary before. Memory counts against the container, and 16 MiB would not do."""
    found = pods.template(wish(memory="64Gi"), 0)["spec"]
    assert {"name": "data", "emptyDir": {}} in found["volumes"]
    assert "rdb-del-sync-files yes" in valkey_conf(wish()).splitlines()


def test_a_directive_of_the_users_comes_once() -> None:
    lines = valkey_conf(wish(config={"maxmemory-policy": "noeviction", "io-threads": "4"})).splitlines()
    assert [line for line in lines if line.startswith("maxmemory-policy")] == ["maxmemory-policy noeviction"]
    assert "io-threads 4" in lines
    names = [line.split()[0] for line in lines]
    assert len(names) == len(set(names))


def test_what_a_user_says_has_an_effect_or_is_refused() -> None:
    """A directive that the operator sets anyway would be silently another one."""
    for line in valkey_conf(wish()).splitlines():
        name = line.partition(" ")[0]
        if name == "client-output-buffer-limit":  # there is one for each class of clients
            continue
        if not faults(resource({"config": {name: "of-the-users"}})):
            assert f"{name} of-the-users" in valkey_conf(wish(config={name: "of-the-users"}))
            assert line not in valkey_conf(wish(config={name: "of-the-users"}))


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
@pytest.mark.parametrize("auth", ["password", None])
@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
def test_every_shell_can_read_the_scripts(shell: str, auth: str | None, tls: bool) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not here")
    command = [found, "sh"] if shell == "busybox" else [found]
    made = (scripts.start(auth, tls), scripts.ready(auth, tls), scripts.alive(auth, tls), scripts.leave(auth, tls))
    for script in made:
        subprocess.run([*command, "-n"], input=script, text=True, check=True, capture_output=True)


@pytest.mark.parametrize(
    "password",
    ["simple", 'with "quotes" and \\x41', "ünïcödé ☃", "#*$(id)`id`' ", "tab\tand\nline"],
    ids=["simple", "quotes", "unicode", "shell", "white"],
)
def test_the_start_writes_secrets_for_the_server_only(tmp_path: Path, password: str) -> None:
    """The script itself, with its folders elsewhere and a server that prints how it was started."""
    folders = {
        scripts.CONF: tmp_path / "conf", scripts.AUTH: tmp_path / "auth", scripts.RUN: tmp_path / "run",
        scripts.DATA: tmp_path / "data",
    }  # fmt: skip
    for folder in folders.values():
        folder.mkdir()
    for left in (folders[scripts.RUN] / "nodes.conf", folders[scripts.DATA] / "dump.rdb"):
        left.write_text("what it had before it died")
    script = scripts.start("password", False)
    for path in (scripts.AUTH, scripts.CONF, scripts.RUN, scripts.DATA):
        script = script.replace(path + "/", f"{folders[path]}/").replace(f"--dir {path}", f"--dir {folders[path]}")
    (folders[scripts.CONF] / "valkey.conf").write_text("maxmemory 1\n")
    (folders[scripts.AUTH] / "password").write_text(password + "\n")
    (folders[scripts.AUTH] / "previous").write_text("older")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "valkey-server").write_text('#!/bin/sh\necho "$@"\nenv\n')
    (programs / "valkey-server").chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "POD_IP": "10.1.2.3", "NODE_WAIT_SECONDS": "0"}
    done = subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert "--bind 10.1.2.3" in done.stdout
    assert f"--dir {folders[scripts.DATA]}" in done.stdout
    assert [path.name for path in folders[scripts.DATA].iterdir()] == []
    assert {path.name for path in folders[scripts.RUN].iterdir()} == {"started", "valkey.conf"}
    assert password not in done.stdout
    conf = folders[scripts.RUN] / "valkey.conf"
    assert conf.stat().st_mode & 0o077 == 0
    lines = conf.read_text().splitlines()
    assert lines[0] == "maxmemory 1"
    assert lines[-1] == "port 6379"
    (written,) = [line for line in lines if line.startswith("masterauth")]
    quoted = written.removeprefix('masterauth "').removesuffix('"')
    assert bytes.fromhex(quoted.replace("\\x", "")).decode() == password
    (user,) = [line for line in lines if line.startswith("user default on #")]
    assert user.count("#") == 2
    assert len(lines) == 4
    subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, check=True)
    assert set(conf.read_text().splitlines()) - set(lines) == {f"repl-diskless-sync-delay {scripts.AGAIN_SECONDS}"}


@pytest.mark.parametrize(
    ("reply", "ready", "alive"),
    [("PONG", 0, 0), ("NOAUTH Authentication required.", 0, 0), ("LOADING it is", 1, 0), ("", 1, 1), (None, 0, 0)],
    ids=["pong", "noauth", "loading", "silent", "no-client"],
)
def test_a_node_that_says_nothing_is_ended_and_one_that_loads_is_let_be(
    tmp_path: Path, reply: str | None, ready: int, alive: int
) -> None:
    if reply is None and (shutil.which("redis-cli") or shutil.which("valkey-cli")):
        pytest.skip("a client is installed here")
    if reply is not None:
        (tmp_path / "valkey-cli").write_text(f"#!/bin/sh\nprintf %s '{reply}'\n")
        (tmp_path / "valkey-cli").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "POD_IP": "10.1.2.3"}
    for script, status in ((scripts.ready(None, False), ready), (scripts.alive(None, False), alive)):
        assert subprocess.run(["/bin/sh", "-c", script], env=environment, check=False).returncode == status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("AUTH failed: WRONGPASS invalid username-password pair or user is disabled.", 0),
        ("Could not connect to Valkey at 10.1.2.3:6379: Connection refused", 1),
    ],
    ids=["password", "refused"],
)
def test_a_client_that_speaks_of_the_password_among_its_errors_is_heard(
    tmp_path: Path, error: str, status: int
) -> None:
    """redis-cli 6 ends then, and prints nothing else: all nodes would be ended after a change of the password."""
    (tmp_path / "valkey-cli").write_text(f"#!/bin/sh\necho '{error}' >&2\nexit 1\n")
    (tmp_path / "valkey-cli").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "POD_IP": "10.1.2.3"}
    for script in (scripts.ready(None, False), scripts.alive(None, False)):
        done = subprocess.run(["/bin/sh", "-c", script], env=environment, check=False, capture_output=True)
        assert done.returncode == status


def test_a_start_without_a_password_is_refused(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("\n")
    script = scripts.start("password", False).replace(scripts.AUTH, str(tmp_path))
    script = script.replace(scripts.CONF, str(tmp_path)).replace(scripts.RUN, str(tmp_path))
    (tmp_path / "valkey.conf").write_text("")
    environment = {"PATH": "/usr/bin:/bin", "POD_IP": "::1", "NODE_WAIT_SECONDS": "0"}
    done = subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the password is empty" in done.stderr


CLIENT = """#!/bin/sh
[ "$1 $3" = "-h -p" ] || exit 1
host=$2; shift 4
echo "$host $*" >> "$STAGE/said"
case $*:$host in
"cluster myid:"*) echo aaa ;;
"ping:"*) echo PONG ;;
"info replication:"*) printf 'role:master\\r\\nconnected_slaves:%s\\r\\n' "$LINKED" ;;
"cluster failover:10.0.0.2") : > "$STAGE/over" ;;
"cluster nodes:10.0.0.1")
  [ -e "$STAGE/over" ] && slots= || slots=" 0-5460"
  echo "aaa 10.0.0.1:6379@16379 myself,master - 0 0 1 connected$slots"
  looks=$(grep -c "^10.0.0.1 cluster nodes" "$STAGE/said")
  [ "$looks" -le "$UNKNOWN" ] || echo "bbb 10.0.0.2:6379@16379 slave,nofailover aaa 0 0 1 connected"
  echo "ccc 10.0.0.3:6379@16379 master - 0 0 2 connected 5461-10922"
  echo "ddd 10.0.0.4:6379@16379 master,fail - 0 0 3 connected 10923-16383"
  echo "eee 10.0.0.5:6379@16379 master - 0 0 0 connected" ;;
"cluster nodes:10.0.0.3")
  asked=$(grep -c "^10.0.0.3 cluster nodes" "$STAGE/said")
  [ "$asked" -le "$LATE" ] && role="master -" || role="slave aaa"
  echo "bbb 10.0.0.2:6379@16379 $role 0 0 1 connected" ;;
esac
"""


CLOCK = """#!/bin/sh
echo >> "$STAGE/ticks"
echo $((1000000000 + TICK * $(wc -l < "$STAGE/ticks")))
"""


def left(tmp_path: Path, late: int, unknown: int = 0, linked: int = 1, tick: int = 0) -> list[str]:
    """What the script told whom. late, unknown: looks of another and of the primary that show no replica. tick: seconds
    that pass between two looks at the clock."""
    for name, text in (("valkey-cli", CLIENT), ("sleep", "#!/bin/sh\nexit 0\n"), ("date", CLOCK)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin", "POD_IP": "10.0.0.1", "STAGE": str(tmp_path), "NODE_WAIT_SECONDS": "10",
        "LATE": str(late), "UNKNOWN": str(unknown), "LINKED": str(linked), "TICK": str(tick),
    }  # fmt: skip
    subprocess.run(["/bin/sh", "-c", scripts.leave(None, False)], env=environment, check=True)
    return (tmp_path / "said").read_text().splitlines()


@pytest.mark.parametrize("late", [0, 3, 1000])
def test_a_primary_that_leaves_waits_until_the_others_know_its_replica(tmp_path: Path, late: int) -> None:
    """One of the three is dead, so the other one's vote is needed. For one that never knows, nobody waits for ever."""
    said = left(tmp_path, late)
    looks = [line for line in said if line == "10.0.0.3 cluster nodes"]
    assert len(looks) == min(late + 1, 13)
    assert said.count("10.0.0.2 cluster failover") == 1
    assert said.index("10.0.0.2 cluster failover") > max(place for place, line in enumerate(said) if line in looks)
    assert not any(line.startswith(("10.0.0.4", "10.0.0.5")) for line in said)


def test_a_primary_that_leaves_waits_until_it_knows_its_own_replica(tmp_path: Path) -> None:
    """A replica is linked before the nodes have told each other whose it is: drained then, its shard served nothing."""
    assert "10.0.0.2 cluster failover" in left(tmp_path, 0, unknown=6)


def test_a_primary_that_leaves_waits_for_no_longer_than_it_may(tmp_path: Path) -> None:
    """Others that are gone are waited for, each of them, until it knows that they are."""
    said = left(tmp_path, 1000, tick=4)
    assert said.count("10.0.0.3 cluster nodes") == 4
    assert said.count("10.0.0.2 cluster failover") == 1


def test_a_primary_without_a_replica_leaves_at_once(tmp_path: Path) -> None:
    said = left(tmp_path, 0, unknown=1000, linked=0)
    assert said.count("10.0.0.1 info replication") == 1
    assert "10.0.0.2 cluster failover" not in said
