"""A replica is waited for while it is linked and tells how far it is, and no longer than it is worth."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mmcache.model.errors import ScaleError
from mmcache.scale import replication
from mmcache.scale.observed import Member
from mmcache.scale.present import Present
from mmcache.scale.replication import Replication

Role = list[Any]


def primary(offset: int, *replicas: int) -> Role:
    """What ROLE says."""
    return [b"master", offset, [[b"10.0.0.9", b"6379", str(has).encode()] for has in replicas]]


class Said:
    """What the primary says to each look, the last for ever; a second goes by with each. Stands for `Present`."""

    timeout_seconds = 5.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *roles: Any) -> None:
        self.roles, self.now = list(roles), 0.0
        self.told: list[tuple[Any, ...]] = []
        self.access = self
        monkeypatch.setattr(replication, "time", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 1.0

    def member(self, name: str) -> Member:
        return Member(1, 0, "10.0.0.1", 6379)

    def contact(self, name: str) -> Said:
        return self

    def to(self, host: str, port: int) -> Said:
        self.told.append(("connect",))
        return self

    def ask(self, *words: Any) -> Any:
        if words[0] != "ROLE":
            return 7
        return self.roles.pop(0) if len(self.roles) > 1 else self.roles[0]

    def tell(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        self.told += commands
        return [1 for _ in commands]

    def begin(self, commands: list[tuple[Any, ...]], seconds: float) -> None:
        self.told += commands

    def end(self) -> list[Any]:
        return [0]

    def __enter__(self) -> Said:
        return self

    def __exit__(self, *_: object) -> None: ...


def waiting(said: Said, patience: float = 10.0) -> Replication:
    """For the primary that says so."""
    return Replication(cast(Present, said), "1-0", patience)


@pytest.mark.parametrize("role", [primary(900), primary(900, 900), primary(900, 30, 905), [b"slave", b"h", 1, b"x", 3]])
def test_nobody_is_waited_for_who_is_not_linked_or_has_all(monkeypatch: pytest.MonkeyPatch, role: Role) -> None:
    said = Said(monkeypatch, role)
    with waiting(said) as replica:
        assert replica.caught_up()
    assert not said.told


def test_it_is_over_when_one_of_them_has_all_that_was_there_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said(monkeypatch, primary(900, 100, 200), primary(950, 100, 899), primary(990, 100, 900))
    with waiting(said) as replica:
        assert replica.caught_up()
        assert said.now == 2.0
        # More than there are: it has to ask, and nobody's offset can end the wait but ours.
        assert said.told == [("connect",), ("WAIT", 3, 1), ("CLIENT", "UNBLOCK", 7)]
        said.roles = [primary(1500, 900), primary(1500, 1500)]
        assert replica.caught_up()
    assert said.told[3:] == [("WAIT", 2, 1), ("CLIENT", "UNBLOCK", 7)]


def test_who_goes_away_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with waiting(Said(monkeypatch, primary(900, 100), primary(900))) as replica:
        assert replica.caught_up()


def test_who_is_silent_is_given_up_until_it_is_heard_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said(monkeypatch, primary(900, 100))
    with waiting(said) as replica:
        assert not replica.caught_up()
        assert said.now == 10.0
        assert not replica.caught_up()
        assert said.now == 10.0
        said.roles = [primary(2000, 101), primary(2000, 500), primary(2000, 2000)]
        assert replica.caught_up()
        assert said.now == 12.0
        said.roles = [primary(3000, 2000)]
        assert not replica.caught_up()
        assert said.now == 22.0


@pytest.mark.parametrize(
    "role",
    [b"OK", None, [], [b"sentinel", []], [b"master", b"900", []], [b"master", 900, [[b"h", b"1"]]],
     [b"master", 900, [[b"h", b"1", b"-4"]]], [b"master", 900, [[b"h", b"1", 4]]], [b"master", 900, 3]],
)  # fmt: skip
def test_what_no_server_says_is_refused(monkeypatch: pytest.MonkeyPatch, role: Any) -> None:
    with waiting(Said(monkeypatch, role)) as replica, pytest.raises(ScaleError, match="ROLE answers"):
        replica.caught_up()
