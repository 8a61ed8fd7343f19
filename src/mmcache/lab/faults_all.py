"""Every fault that the failure page speaks of, in its order."""

from __future__ import annotations

from mmcache.lab import faults_cluster as clusters
from mmcache.lab import faults_network as networks
from mmcache.lab import faults_server as single
from mmcache.lab.faults_trial import Fault

FAULTS = (
    Fault(
        "node-killed", "SIGKILL of a primary of a 3+3 cluster while two hosts write",
        "The cluster makes its replica the primary; nobody has to do anything.", clusters.node_killed, quick=True,
    ),
    Fault(
        "node-silent", "SIGSTOP of a primary for 3 s, less than the cluster needs to notice; then SIGCONT",
        "As soon as it answers a probe.", clusters.node_silent,
    ),
    Fault(
        "shard-lost", "SIGKILL of a primary and of its replica; both started again, empty, after 4 s",
        "When they are back; what they held is computed anew.", clusters.shard_lost,
    ),
    Fault(
        "sentinel-failover", "SIGKILL of the primary that three sentinels watch",
        "The sentinels make its replica the primary.", clusters.sentinel_failover,
    ),
    Fault(
        "resharding", "slots move to a node that joined, and stop half-way, under load", "It is none.",
        clusters.resharding, quick=True,
    ),
    Fault(
        "server-gone", "SIGKILL of the only server; started again, empty, after 3 s",
        "When it is back; what it held is computed anew.", single.gone, quick=True,
    ),
    Fault(
        "server-late", "the cache is opened before its server is started", "As soon as the server is there.",
        single.never_there,
    ),
    Fault(
        "cut-off", "the cable between this host and one primary is cut for 3 s; the cluster sees nothing",
        "As soon as a probe gets through.", networks.cut_off, quick=True,
    ),
    Fault(
        "isolated", "one primary is cut off from all other hosts for 5 s",
        "The cluster makes its replica the primary.", networks.isolated,
    ),
    Fault(
        "split", "this host and one primary are cut off from all other nodes for 5 s",
        "When the cables are whole; what the lonely primary took is lost.", networks.split,
    ),
    Fault(
        "split-careful", "the same, with `min-replicas-to-write 1`, `min-replicas-max-lag 1` on the servers",
        "When the cables are whole.", networks.split_careful,
    ),
    Fault(
        "slow-cable", "what one primary sends takes longer than the timeout (netem, or a cable of 500 B/s)",
        "As soon as a probe is answered in time.", networks.slow_cable,
    ),
    Fault(
        "full", "`maxmemory` below what is held, `noeviction`", "When there is memory again.", single.full, quick=True,
    ),
    Fault(
        "evicting", "`maxmemory 4mb`, `allkeys-random`: blocks, leases, pieces and the clock ledger go",
        "Each miss is computed and stored anew; with enough memory all stays.", single.evicting,
    ),
    Fault(
        "clock-ahead", "the wall clock of one primary is set 5 min forward, and right again; blocks live an hour",
        "It is none.", single.clock_ahead, quick=True,
    ),
    Fault(
        "clock-far-ahead", "the same by 2 h, more than the blocks' hour and `spare_seconds`",
        "The node has collected its blocks; each is computed anew.", single.clock_far_ahead,
    ),
    Fault(
        "clock-back", "the same by 2 h back", "It is none; but to set it right is a step of 2 h forward.",
        single.clock_back,
    ),
    Fault(
        "wrong-password", "the cache is opened with a password that the server does not take",
        "As soon as the server takes it, or the cache is opened with the right one.", single.wrong_password,
        quick=True,
    ),
    Fault(
        "password-changed", "the server's password changes under a running cache", "As soon as it is right again.",
        single.password_changed,
    ),
    Fault(
        "not-permitted", "the ACL user loses its rights to the prefix", "When it gets them back.",
        single.not_permitted,
    ),
    Fault(
        "wrong-authority", "the server shows a certificate of an unknown authority", "With the right certificate.",
        single.wrong_authority,
    ),
    Fault(
        "wrong-name", "the server shows a certificate for another name", "With the right certificate.",
        single.wrong_name,
    ),
    Fault(
        "no-tls", "the cache speaks TLS to a port that does not", "With the right URL.", single.no_tls,
    ),
)  # fmt: skip
"""All."""
