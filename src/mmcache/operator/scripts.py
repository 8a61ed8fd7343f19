"""What runs in a node's container: how it starts, whether it answers, how it leaves.

Plain `sh` with `cat`, `date`, `od`, `sed`, `seq`, `tr`, `awk` and `sha256sum`, which Debian's and Alpine's images have.
The server reads secrets from a file in the pod's own memory: they are on no command line.
"""

from __future__ import annotations

from mmcache.operator.names import PORT

CONF = "/etc/mmcache"
AUTH = "/etc/mmcache-auth"
TLS = "/etc/mmcache-tls"
RUN = "/run/mmcache"
"""In memory; lives as long as the pod, longer than a container."""
DATA = "/var/lib/mmcache"
"""On the machine's disk, as long: for the file by which a replica is filled that has something already."""
AGAIN_SECONDS = 15
"""A look of the operator, with a node that does not answer, and the next one. So much later a node that came back in
its pod begins to fill a replica, should it ever be a primary."""

_LEAVE_STEPS = 40
_KNOWN_SECONDS = 30
"""Whoever asks nodes that are gone waits for each of them: with the steps above, less than a pod is given to end."""


def start(auth: str | None, tls: bool) -> str:
    """The container's command. `auth`: the Secret's key."""
    return _lines(
        "set -eu",
        "umask 077",
        # A node that lost its memory comes back under a new name, and not before the others took the old one for dead:
        # else an empty primary would make its replicas forget everything.
        "again=",
        f'if [ -e {RUN}/started ]; then again=yes; sleep "$NODE_WAIT_SECONDS"; fi',
        f": > {RUN}/started",
        # Nor does it come back with blocks that a file has: they may be old, and it would claim the slots of others.
        f"rm -f {RUN}/nodes.conf {DATA}/*.rdb",
        f"cat {CONF}/valkey.conf > {RUN}/valkey.conf",
        # Where the others could not agree, its replicas still look for it, at its address: they keep what they have
        # until it begins to fill them, and the operator appoints one of them before.
        f'if [ -n "$again" ]; then echo "repl-diskless-sync-delay {AGAIN_SECONDS}" >> {RUN}/valkey.conf; fi',
        *(_authenticated(auth) if auth else ()),
        *(_encrypted() if tls else [f"echo 'port {PORT}' >> {RUN}/valkey.conf"]),
        'server=$(command -v valkey-server || command -v redis-server)',
        f'exec "$server" {RUN}/valkey.conf --dir {DATA} --cluster-config-file {RUN}/nodes.conf --bind "$POD_IP" '
        '--cluster-announce-ip "$POD_IP"',
    )  # fmt: skip


def _authenticated(key: str) -> list[str]:
    # Every byte is written as \xHH, so that no password can end the line or begin another directive.
    return [
        f'password=$(cat "{AUTH}/{key}")',
        '[ -n "$password" ] || { echo "the password is empty" >&2; exit 1; }',
        """escaped=$(printf %s "$password" | od -An -v -tx1 | tr -d ' \\n' | sed 's/../\\\\x&/g')""",
        'hashed() { printf \'#%s\' "$(printf %s "$1" | sha256sum | cut -c1-64)"; }',
        'known=$(hashed "$password")',
        f'if [ -s {AUTH}/previous ]; then known="$known $(hashed "$(cat {AUTH}/previous)")"; fi',
        f"""printf 'masterauth "%s"\\nuser default on %s ~* &* +@all\\n' "$escaped" "$known" >> {RUN}/valkey.conf""",
        "unset password escaped known",
    ]


def _encrypted() -> list[str]:
    said = ("port 0", f"tls-port {PORT}", f"tls-cert-file {TLS}/tls.crt", f"tls-key-file {TLS}/tls.key",
            f"tls-ca-cert-file {TLS}/ca.crt", "tls-auth-clients optional", "tls-cluster yes",
            "tls-replication yes")  # fmt: skip
    return [f"printf '%s\\n' {' '.join(repr(line) for line in said)} >> {RUN}/valkey.conf"]


def ready(auth: str | None, tls: bool) -> str:
    """It answers. An image without a command-line client is taken at its word.

    While a password changes, the file may be older than the server: then who is let in no more knows that it lives.
    Some clients say so among their errors only, and ask no more.
    """
    return _lines(
        *_client(auth, tls),
        '[ -n "$cli" ] || exit 0',
        'case $(ask "$POD_IP" ping 2>&1) in *PONG* | *NOAUTH* | *WRONGPASS*) exit 0 ;; esac',
        "exit 1",
    )


def alive(auth: str | None, tls: bool) -> str:
    """It says anything at all, be it that it loads, or that the password is another one by now (see `ready`).

    One that hangs still takes connections: the kernel does that.
    """
    return _lines(
        *_client(auth, tls),
        '[ -z "$cli" ] || [ -n "$(ask "$POD_IP" ping 2>/dev/null)" ] && exit 0',
        'case $(ask "$POD_IP" ping 2>&1) in *NOAUTH* | *WRONGPASS*) exit 0 ;; esac',
        "exit 1",
    )


def leave(auth: str | None, tls: bool) -> str:
    """Before it is ended, as when its machine is drained: a primary with slots lets a replica take its place.

    A replica that was not let by most primaries asks them again after four node timeouts only, so it is to be known to
    them first: see `mmcache.scale.votes`, which the operator decides by, who hands over as well.
    """
    return _lines(
        "limited=$(command -v timeout) && limited='timeout 3' || limited=",
        *_client(auth, tls),
        "exec 2>/dev/null",
        '[ -n "$cli" ] || exit 0',
        'mine=$(ask "$POD_IP" cluster myid)',
        # Columns: id, address, flags, primary, ping, pong, epoch, link, slots.
        """nodes() { ask "$POD_IP" cluster nodes; }""",
        """serves() { nodes | awk -v id="$mine" '$1 == id && $3 ~ /master/ && NF > 8 { found = 1 } """
        """END { exit !found }'; }""",
        "serves || exit 0",
        """host() { awk '{ sub(/@.*/, "", $2); sub(/:[0-9]+$/, "", $2); print $2 }'; }""",
        # `nofailover` is no failure.
        """replica() { nodes | awk -v id="$mine" '$4 == id && ("," $3) !~ /,fail/ && $8 == "connected" """
        """{ print; exit }'; }""",
        """primaries() { nodes | awk '$3 ~ /master/ && $3 !~ /myself/ && NF > 8'; }""",
        """knows() { ask "$1" cluster nodes | awk -v id="${found%% *}" -v of="$mine" '$1 == id && $4 == of """
        """&& ("," $3) !~ /,fail|handshake|noaddr/ && $8 == "connected" { known = 1 } END { exit !known }'; }""",
        f"end=$(($(date +%s) + {_KNOWN_SECONDS}))",
        """late() { [ "$(date +%s)" -ge "$end" ]; }""",
        # We know it, and vote, too.
        """known() { found=$(replica); [ -n "$found" ] || return 1; """
        """all=$(primaries | awk 'END { print NR + 1 }'); yes=1; """
        """for one in $(primaries | awk '("," $3) !~ /,fail|noaddr/' | host); do """
        """[ $((2 * yes)) -gt "$all" ] || late && break; knows "$one" && yes=$((yes + 1)); done; """
        """[ $((2 * yes)) -gt "$all" ]; }""",
        # It may have a replica that it does not know for one yet, or none.
        """for _ in $(seq $((${NODE_WAIT_SECONDS:-10} / 2 + 8))); do known || late && break; serves || exit 0; """
        """case $(ask "$POD_IP" info replication) in *connected_slaves:0*) exit 0 ;; esac; sleep 0.5; done""",
        'heir=$(printf "%s\\n" "$found" | host)',
        '[ -n "$heir" ] || exit 0',
        'ask "$heir" cluster failover > /dev/null',
        # It may be leaving as well, as when the whole shard is: then nobody is waited for.
        f'for _ in $(seq {_LEAVE_STEPS}); do serves || exit 0; [ "$(ask "$heir" ping)" = PONG ] || exit 0; sleep 0.5; '
        "done",
    )


def _client(auth: str | None, tls: bool) -> list[str]:
    words = f"-p {PORT}" + (f" --tls --cacert {TLS}/ca.crt" if tls else "")
    secret = [f'export REDISCLI_AUTH="$(cat "{AUTH}/{auth}")"', 'export VALKEYCLI_AUTH="$REDISCLI_AUTH"']
    return [
        "cli=$(command -v valkey-cli || command -v redis-cli || true)",
        *(secret if auth else ()),
        f'ask() {{ host=$1; shift; ${{limited-}} "$cli" -h "$host" {words} "$@"; }}',
    ]


def _lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"
