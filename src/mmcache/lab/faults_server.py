"""Scenes of one server: full, set to another time, with another password, with the wrong certificate, gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from mmcache.lab.faults_trial import Scene, nothing, settings_for
from mmcache.lab.servers import Certificates, Server, certificates, cluster, server

_PASSWORD, _OTHER = "right", "another"
_STEP, _LEAP = 300.0, 7200.0
"""Seconds by which a clock is set; blocks live an hour."""


@contextmanager
def gone(folder: Path, rng: Random) -> Iterator[Scene]:
    """The only server dies, and is started again, empty."""
    with server(folder) as made:
        yield Scene(settings_for(made.url), made.kill, made.restart)


@contextmanager
def never_there(folder: Path, rng: Random) -> Iterator[Scene]:
    """The server is not there when the cache is opened, and is started later."""
    with server(folder) as made:
        made.kill()
        yield Scene(settings_for(made.url), nothing, made.restart, ready=False)


@contextmanager
def full(folder: Path, rng: Random) -> Iterator[Scene]:
    """The server has no memory left, and evicts nothing."""
    with server(folder, None, "--maxmemory", "0", "--maxmemory-policy", "noeviction") as made:

        def limit(size: int) -> None:
            made.ask("CONFIG", "SET", "maxmemory", size)

        yield Scene(settings_for(made.url), lambda: limit(1 << 20), lambda: limit(0))


@contextmanager
def evicting(folder: Path, rng: Random) -> Iterator[Scene]:
    """The server has too little memory, and evicts what it likes: also leases, pieces of blocks, the clock ledger."""
    with server(folder, None, "--maxmemory-policy", "allkeys-random") as made:

        def limit(size: int) -> None:
            made.ask("CONFIG", "SET", "maxmemory", size)

        yield Scene(settings_for(made.url), lambda: limit(4 << 20), lambda: limit(0))


@contextmanager
def clock_ahead(folder: Path, rng: Random) -> Iterator[Scene]:
    """The clock of one primary is set forward, by less than `spare_seconds`."""
    yield from _stepped(folder, rng, _STEP)


@contextmanager
def clock_far_ahead(folder: Path, rng: Random) -> Iterator[Scene]:
    """The clock of one primary is set forward by more than the blocks may live."""
    yield from _stepped(folder, rng, _LEAP)


@contextmanager
def clock_back(folder: Path, rng: Random) -> Iterator[Scene]:
    """The clock of one primary is set back."""
    yield from _stepped(folder, rng, -_LEAP)


def _stepped(folder: Path, rng: Random, by: float) -> Iterator[Scene]:
    with cluster(folder, ahead=0.0) as made:
        victim = rng.choice(made.primaries).server
        yield Scene(settings_for(made.url), lambda: victim.set_clock(by), lambda: victim.set_clock(0.0))


@contextmanager
def wrong_password(folder: Path, rng: Random) -> Iterator[Scene]:
    """The cache has a password that the server does not take, until it is told to."""
    with server(folder, password=_OTHER) as made:
        yield Scene(
            settings_for(made.url, password=_PASSWORD), nothing, lambda: _take(made, _PASSWORD), ready=False
        )  # fmt: skip


@contextmanager
def password_changed(folder: Path, rng: Random) -> Iterator[Scene]:
    """The server's password is changed while the cache runs, and changed back."""
    with server(folder, password=_PASSWORD) as made:
        yield Scene(
            settings_for(made.url, password=_PASSWORD), lambda: _take(made, _OTHER), lambda: _take(made, _PASSWORD)
        )  # fmt: skip


def _take(made: Server, password: str) -> None:
    """From now on it lets in whoever has this password, and nobody who was let in before."""
    made.ask("CONFIG", "SET", "requirepass", password)
    made.password = password
    made.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


@contextmanager
def not_permitted(folder: Path, rng: Random) -> Iterator[Scene]:
    """The user's rights to the cache's prefix are taken away, and given back."""
    with server(folder, users={"tenant": "on >secret ~* &* +@all"}) as made:

        def may(keys: str) -> None:
            made.ask("ACL", "SETUSER", "tenant", "resetkeys", keys)

        url = made.url.replace("://", "://tenant:secret@")
        yield Scene(settings_for(url), lambda: may("~elsewhere:*"), lambda: may("~*"))


@contextmanager
def wrong_authority(folder: Path, rng: Random) -> Iterator[Scene]:
    """The server shows a certificate of an authority that the cache does not trust."""
    right = certificates(folder / "right")
    yield from _with_certificate(folder, right, certificates(folder / "stranger"))


@contextmanager
def wrong_name(folder: Path, rng: Random) -> Iterator[Scene]:
    """The server shows a certificate of the trusted authority, for another host."""
    right = certificates(folder / "right")
    yield from _with_certificate(folder, right, certificates(folder / "other", "example.org", by=right))


def _with_certificate(folder: Path, right: Certificates, wrong: Certificates) -> Iterator[Scene]:
    with server(folder / "server", tls=right) as made:

        def show(shown: Certificates) -> None:
            made.ask(
                "CONFIG", "SET", "tls-cert-file", str(shown.certificate), "tls-key-file", str(shown.key),
                "tls-ca-cert-file", str(shown.authority),
            )  # fmt: skip
            made.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

        settings = settings_for(made.url, tls_ca=str(right.authority))
        yield Scene(settings, lambda: show(wrong), lambda: show(right))


@contextmanager
def no_tls(folder: Path, rng: Random) -> Iterator[Scene]:
    """The cache speaks TLS to a port that does not."""
    with server(folder / "server") as made:
        settings = settings_for(made.url.replace("valkey://", "valkeys://"))
        yield Scene(settings, nothing, nothing, ready=False, heals=False, lasts=2.0)
