"""Nobody is introduced to whoever has an address by now."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mmcache.model.errors import ScaleError
from mmcache.scale.access import Access
from mmcache.scale.controller import never
from mmcache.scale.joining import assign, meet
from mmcache.scale.observed import Member, NodeSeen, Observed
from mmcache.scale.present import Present
from mmcache.scale.steps import Assign, Meet
from mmcache.scale.views import View, read_view

MEMBERS = (Member(0, 0, "10.0.0.1", 6379), Member(1, 0, "10.0.0.2", 6379))
SEEN = Observed(MEMBERS, {"0-0": NodeSeen("a" * 40), "1-0": NodeSeen("b" * 40)})


class Town:
    """Who lives where; stands for `Access`."""

    timeout_seconds = 1.0

    def __init__(self, **living: str) -> None:
        self.living = {f"10.0.0.{name[1:]}": who for name, who in living.items()}
        self.told: list[tuple[Any, ...]] = []

    def to(self, host: str, port: int) -> Any:
        town = self

        class Contact:
            def ask(self, *words: Any) -> bytes:
                town.told.append((host, *words))
                if words == ("CLUSTER", "MYID"):
                    return (town.living[host] * 40).encode()
                if words == ("CLUSTER", "NODES"):
                    return "".join(
                        f"{who * 40} {at}:6379@16379 {'myself,' * (at == host)}master - 0 0 1 connected\n"
                        for at, who in town.living.items()
                    ).encode()
                return b"OK"

            def __enter__(self) -> Contact:
                return self

            def __exit__(self, *_: object) -> None: ...

        return Contact()


@pytest.mark.parametrize("moved", ["newcomer", "acquainted"])
def test_an_address_that_is_anothers_by_now_is_introduced_to_nobody(moved: str) -> None:
    """Without a password nothing else would keep two clusters from becoming one."""
    town = Town(p1="a" if moved == "newcomer" else "f", p2="f" if moved == "newcomer" else "b")
    with Present(SEEN, cast(Access, town)) as present, pytest.raises(ScaleError, match="is another node than when"):
        meet(Meet("1-0", "0-0"), present, never)
    assert not [words for words in town.told if "MEET" in words]


def test_those_who_were_seen_are_introduced() -> None:
    town = Town(p1="a", p2="b")
    with Present(SEEN, cast(Access, town)) as present:
        meet(Meet("1-0", "0-0"), present, never)
    assert ("10.0.0.2", "CLUSTER", "MEET", "10.0.0.1", 6379) in town.told


class Heir:
    """Stands for `Present` and its only node, which has keys of a slot that it is given; it knows a replica first."""

    def __init__(self, others: str) -> None:
        self.seen, self.told, self._others = SEEN, list[tuple[Any, ...]](), others

    def contact(self, name: str) -> Heir:
        return self

    def chorus(self, name: str) -> Heir:
        return self

    def named(self, id_: str) -> None:
        return None

    def view(self, name: str) -> View:
        lines = f"{'a' * 40} 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 5\n{self._others}"
        return read_view(lines.encode())

    def ask(self, *words: Any) -> Any:
        self.told.append(words)
        return [] if "GETKEYSINSLOT" in words else b"OK"

    def insist(self, parts: Any) -> list[Any]:
        self.told += [words for part in parts for words in ([part] if isinstance(part[0], str) else part)]
        return [1 for _ in parts]

    tell = insist


def test_what_is_left_over_is_cleared_as_if_it_came_from_a_primary() -> None:
    """Servers open a slot to nobody from a replica: with something left over, it would never be given to anybody."""
    replica = f"{'c' * 40} 10.0.0.3:6379@16379 slave {'b' * 40} 0 0 1 connected\n"
    heir = Heir(replica + f"{'b' * 40} 10.0.0.2:6379@16379 master,fail - 0 0 2 connected 7\n")
    assign(Assign("0-0", (7,)), cast(Present, heir))
    opened = ("CLUSTER", "SETSLOT", 7, "IMPORTING", "b" * 40)
    assert heir.told.index(opened) < heir.told.index(("CLUSTER", "SETSLOT", 7, "NODE", "a" * 40))
