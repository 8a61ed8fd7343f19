"""Real Valkey and Redis servers: one, one with replicas and sentinels, a cluster; and what befalls them.

They are processes of this machine on loopback, from packages. Each can be killed, paused, given a clock of its own, cut
off from others. For the lab and for tests.
"""

from mmcache.lab.servers.certificates import Certificates, certificates
from mmcache.lab.servers.clocks import Elsewhere, clock_of, faketime, set_clock
from mmcache.lab.servers.cluster import Cluster, Node, cluster, slot_of
from mmcache.lab.servers.network import Host, Network, network
from mmcache.lab.servers.process import Server
from mmcache.lab.servers.replicated import Replicated, Sentinel, replicated
from mmcache.lab.servers.reshard import SlotMove
from mmcache.lab.servers.single import Setup, server
from mmcache.scale.binaries import Binary, binaries, binary, choose
from mmcache.scale.talk import ask, talk

__all__ = [
    "Binary", "Certificates", "Cluster", "Elsewhere", "Host", "Network", "Node", "Replicated", "Sentinel",
    "Server", "Setup", "SlotMove", "ask", "binaries", "binary", "certificates", "choose", "clock_of",
    "cluster", "faketime", "network", "replicated", "server", "set_clock", "slot_of", "talk",
]  # fmt: skip
