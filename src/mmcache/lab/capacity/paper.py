"""A cluster on paper: from pictures a second to shards, network and money. Arithmetic; every assumption a field."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

HOUR = 3600.0


@dataclass(frozen=True)
class Assumed:
    """Nothing of this is measured here: put in your own."""

    encode_seconds: float = 0.02
    """GPU time a picture takes in its encoder and projector."""
    picture_share: float = 0.3
    """Of a GPU's time that goes into encoding pictures when nothing is cached."""
    gpu_dollars_an_hour: float = 2.5
    memory_dollars_a_gib_hour: float = 0.005
    node_gib: float = 64.0
    """Of memory for blocks in one node."""
    fill: float = 0.85
    network_bytes_a_second: float = 25e9 / 8
    """Of one node's network card."""
    network_share: float = 0.6
    """Of it that may be used: bursts, replication, resharding want the rest."""
    replicas: int = 1
    stream_hours: float = 1.0
    """What the replayed stream stands for: its different blocks are those of so long."""


@dataclass(frozen=True)
class Cluster:
    """What `GPUs` want."""

    pictures: float
    """A second, of all GPUs."""
    hit_bytes: float
    """A second, read from the shared tier."""
    gib: float
    """Of primaries' memory for what is kept."""
    shards: int
    bound_by: str
    """`memory`, `network` or `majority` (three is the least)."""
    gpus_saved: float
    dollars_saved: float
    """An hour, after what the nodes cost."""
    dollars_spent: float
    """An hour, for the nodes' memory."""


def cluster(
    gpus: int, hit: float, local: float, different: float, kept: float, block_bytes: float, assumed: Assumed
) -> Cluster:
    """All shares 0…1. hit: pictures found anywhere; local: found at the engine itself, without the network;
    different: different pictures of all that are asked for; kept: of these, what there is memory for in the tier."""
    pictures = gpus * assumed.picture_share / assumed.encode_seconds
    read, written = pictures * (hit - local) * block_bytes, pictures * (1 - hit) * block_bytes
    gib = pictures * different * kept * assumed.stream_hours * HOUR * block_bytes / 2**30
    by_memory = ceil(gib / (assumed.node_gib * assumed.fill))
    usable = assumed.network_bytes_a_second * assumed.network_share
    by_network = ceil((read + written * (1 + assumed.replicas)) / usable)
    shards = max(3, by_memory, by_network)
    bound = "majority" if shards == 3 else "memory" if by_memory >= by_network else "network"
    saved = gpus * assumed.picture_share * hit
    spent = shards * (1 + assumed.replicas) * assumed.node_gib * assumed.memory_dollars_a_gib_hour
    return Cluster(pictures, read, gib, shards, bound, saved, saved * assumed.gpu_dollars_an_hour - spent, spent)


def break_even_seconds(block_bytes: float, assumed: Assumed) -> float:
    """How long a block may wait for its next use before keeping it costs more than computing it again.

    The five-minute rule (Gray & Putzolu, SIGMOD 1987), for a GPU instead of a disk; replicas are paid for, too.
    """
    compute = assumed.encode_seconds * assumed.gpu_dollars_an_hour / HOUR
    gib = block_bytes * (1 + assumed.replicas) / 2**30 / assumed.fill
    return compute / (gib * assumed.memory_dollars_a_gib_hour / HOUR)
