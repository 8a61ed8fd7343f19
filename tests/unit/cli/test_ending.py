"""A live screen ends by a signal, wherever the program is when that comes."""

from __future__ import annotations

import signal

import pytest

from mmcache.cli.ending import ended_by_signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_next_pause_even_if_it_comes_in_a_finaliser(number: int) -> None:
    class Last:
        def __del__(self) -> None:  # where an exception would be swallowed
            signal.raise_signal(number)

    def screen() -> None:
        with ended_by_signal() as pause:
            assert pause(0.0)
            last = Last()
            del last
            assert not pause(600.0)

    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        screen()
    assert signal.getsignal(number) is before


def test_without_one_nothing_is_raised() -> None:
    with ended_by_signal() as pause:
        assert pause(0.0)
