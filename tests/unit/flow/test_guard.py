"""The net-benefit guard steps aside where lookups cost more than they save, and looks again."""

from __future__ import annotations

from mmcache.guard import NetBenefit


def test_it_stays_while_a_lookup_is_cheaper_than_computing_even_when_all_is_cold() -> None:
    guard = NetBenefit(window=10)
    assert not any(guard.observe(0.001, 0.01) for n in range(100))
    assert not guard.bypass()


def test_it_steps_aside_for_a_pause_and_then_looks_again() -> None:
    guard = NetBenefit(window=10, pause=5)
    assert [guard.observe(0.001, 0.0001) for _ in range(10)] == [False] * 9 + [True]
    assert [guard.bypass() for _ in range(6)] == [True] * 5 + [False]
    assert not any(guard.observe(0.001, 0.1) for _ in range(10))
