"""Of several operators one works; time is the test's."""

from __future__ import annotations

from tests.unit.operator.fake_server import FakeServer, refusal

from mmcache.operator.api import LEASES
from mmcache.operator.lease import LASTS_SECONDS, Leadership

AT = LEASES.path("home", "lease")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def pair() -> tuple[FakeServer, Clock, Leadership, Leadership]:
    server, clock = FakeServer(), Clock()
    one, two = (Leadership(server.api(), "home", "lease", name, clock) for name in ("one", "two"))
    return server, clock, one, two


def test_the_first_takes_it_and_keeps_it() -> None:
    server, clock, one, two = pair()
    assert one.renew()
    for _ in range(20):
        clock.now += 4
        assert one.renew()
        assert not two.renew()
    assert server.objects[AT]["spec"]["holderIdentity"] == "one"
    assert server.objects[AT]["spec"]["leaseTransitions"] == 1


def test_it_is_never_held_by_two() -> None:
    """One hangs; it takes itself for out before the other may begin."""
    _, clock, one, two = pair()
    assert one.renew()
    assert not two.renew()
    held = []
    for _ in range(2 * LASTS_SECONDS):
        clock.now += 1
        two.renew()
        held.append((one.held, two.held))
    assert (True, True) not in held
    assert held[0] == (True, False)
    assert held[-1] == (False, True)
    assert not one.renew()


def test_a_newcomer_waits_its_own_time() -> None:
    """Whatever the clocks of the machines say: it has seen no change for so long itself."""
    _, clock, one, two = pair()
    one.renew()
    clock.now += 1000
    assert not two.renew()
    clock.now += LASTS_SECONDS - 1
    assert not two.renew()
    clock.now += 1
    assert two.renew()


def test_what_is_given_up_is_taken_at_once() -> None:
    _, _, one, two = pair()
    one.renew()
    one.give_up()
    assert not one.held
    assert two.renew()
    one.give_up()  # not ours any more
    assert two.renew()


def test_the_faster_of_two_wins() -> None:
    server, _, one, two = pair()
    server.broken = [refusal(404, "not found"), refusal(409, "already exists")]
    assert not one.renew()
    assert two.renew()


def test_it_is_lost_when_the_server_is_away_for_long() -> None:
    server, clock, one, _ = pair()
    one.renew()
    for _ in range(3):
        clock.now += 4
        server.broken.append(refusal(500, "no"))
        one.renew()
    assert not one.held
    assert one.renew()
