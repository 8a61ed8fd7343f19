"""`Client` against servers that are told what to say: redirections, what passes, nonsense, silence. Virtual time."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tiers.fake_valkey import Answer, Error, Hangup, Raw, Words, fakes, slots_of

from mmcache.model.clock import Clock, SystemClock
from mmcache.model.errors import TierClosedError, TierError
from mmcache.model.event import Event, Failed
from mmcache.settings import SharedSettings
from mmcache.testing.clock import FakeClock
from mmcache.tiers.valkey.address import Address
from mmcache.tiers.valkey.client import Client, Down, Node, Refusal, Request, Script
from mmcache.tiers.valkey.limit import Limit
from mmcache.tiers.valkey.node import Peer
from mmcache.tiers.valkey.routes import Routes
from mmcache.tiers.valkey.slots import slot_of
from mmcache.tiers.valkey.wire import Wire

_opened: list[Client] = []


@pytest.fixture(autouse=True)
def closed_in_the_end() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def get(key: bytes, replica: bool = False) -> Request:
    return Request(key, ("GET", key), replica)


def client(ports: list[int], clock: Clock | None = None, *, cluster: bool = False, **more: Any) -> Client:
    fake = FakeClock()
    emit = more.pop("emit", lambda event: None)
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    url = f"valkey://{more.pop('login', '')}{hosts}{'?cluster=true' if cluster else ''}"
    asker = Client(
        SharedSettings(url, **more),
        clock=clock or fake,
        emit=emit,
        sleep=clock.advance if isinstance(clock, FakeClock) else fake.advance,
    )
    _opened.append(asker)
    return asker


def scripted(*replies: Any) -> Answer:
    """One after another, whatever is asked."""
    rest = iter(replies)
    return lambda words: next(rest)


def test_replies_keep_their_order_and_refusals_their_place() -> None:
    with fakes(lambda words: Error("OOM full") if words[1] == b"b" else words[1]) as ports:
        assert client(ports).ask([get(b"a"), get(b"b"), get(b"c")]) == [b"a", "OOM full", b"c"]
        refused = client(ports).ask([get(b"b")])[0]
        assert isinstance(refused, Refusal)
        assert client(ports).ask([]) == []


@pytest.mark.parametrize("nonsense", [b"garbage\r\n", b"\r\n", b"$3\r\nabcdef\r\n", b"%1\r\n", b":1\r\n:2\r\n"])
def test_nonsense_is_down_and_never_answers_another_question(nonsense: bytes) -> None:
    replies: Iterator[Any] = iter([Raw(nonsense)])
    with fakes(lambda words: next(replies, words[1])) as ports:
        clock = FakeClock()
        asker = client(ports, clock)
        down = asker.ask([get(b"a")])[0]
        assert isinstance(down, Down)
        assert str(ports[0]) in down
        assert "left alone" in asker.ask([get(b"b")])[0]
        clock.advance(1.0)
        assert asker.ask([get(b"c"), get(b"d")]) == [b"c", b"d"]


def test_what_comes_unasked_on_an_idle_connection_is_no_reply() -> None:
    sent = threading.Event()

    def twice(words: Words) -> Any:
        if words[1] != b"a":
            return words[1]

        def pieces() -> Iterator[bytes]:
            yield b"$1\r\na\r\n"
            assert sent.wait(10)
            yield b"$4\r\nevil\r\n"
            done.set()

        return pieces()

    done = threading.Event()
    with fakes(twice) as ports:
        asker = client(ports)
        assert asker.ask([get(b"a")]) == [b"a"]
        sent.set()
        assert done.wait(10)
        assert asker.ask([get(b"b")]) == [b"b"]
        assert asker.status()["opened"] == 2


def test_a_late_reply_answers_nobody() -> None:
    go = threading.Event()

    def late(words: Words) -> Any:
        if words[1] == b"slow":
            go.wait(10)
        return words[1]

    with fakes(late) as ports:
        clock = FakeClock()
        asker = client(ports, clock, timeout_seconds=0.05)
        assert "in time" in asker.ask([get(b"slow")])[0]
        clock.advance(1.0)
        go.set()
        assert asker.ask([get(b"b")]) == [b"b"]


def test_a_server_that_drips_does_not_hold_a_caller() -> None:
    clock = FakeClock()

    def drips(words: Words) -> Iterator[bytes]:
        yield b"$1000\r\n"
        while True:
            clock.advance(0.1)
            yield b"x"

    with fakes(drips) as ports:
        assert "in time" in client(ports, clock, timeout_seconds=5).ask([get(b"a")])[0]


def test_many_bytes_may_take_longer_than_the_timeout() -> None:
    """16 MiB a second is quick enough, at any size."""
    clock, size = FakeClock(), 32 << 20

    def steady(words: Words) -> Iterator[bytes]:
        yield b"$%d\r\n" % size
        for _ in range(32):
            yield bytes(1 << 20)
            clock.advance(1 / 17)
        yield b"\r\n"

    with fakes(steady) as ports:
        (reply,) = client(ports, clock, timeout_seconds=1.0).ask([get(b"a")])
        assert not isinstance(reply, str)
        assert len(reply) == size


def test_a_connection_closed_midway_is_down_after_one_more_try() -> None:
    asked: Counter[bytes] = Counter()

    def closes(words: Words) -> Any:
        asked[words[1]] += 1
        return Hangup(b"$100\r\nxx") if words[1] == b"bad" else words[1]

    with fakes(closes) as ports:
        asker = client(ports)
        assert asker.ask([get(b"a")]) == [b"a"]
        assert "closed" in asker.ask([get(b"bad")])[0]
        assert asked[b"bad"] == 2  # the first time it might only have been idle for too long
        assert asker.status()["lost"] == 1


def test_an_idle_connection_that_the_server_closed_is_no_failure() -> None:
    with fakes(lambda words: Hangup(b"$2\r\nok\r\n")) as ports:
        asker = client(ports)
        assert [asker.ask([get(b"a")])[0] for _ in range(5)] == [b"ok"] * 5
        assert asker.status()["lost"] == 0


def test_a_server_that_is_gone_rests_and_is_found_again() -> None:
    clock, events = FakeClock(), list[Event]()
    with fakes(lambda words: b"x") as ports:
        pass
    asker = client(ports, clock, emit=events.append)
    assert "refused" in asker.ask([get(b"a")])[0]
    assert "left alone" in asker.ask([get(b"a")])[0]
    assert asker.status()["breakers_open"] == 1
    assert [type(event) for event in events] == [Failed]
    clock.advance(1.0)
    assert "refused" in asker.ask([get(b"a")])[0]
    assert asker.status()["lost"] == 2


@pytest.mark.parametrize(("said", "hint"), [
    ("WRONGPASS invalid", "password of the shared tier"), ("ERR AUTH <password> called without", "leave it out"),
    ("NOPERM this user", "ACL"),
])  # fmt: skip
def test_a_refused_login_is_down_and_says_what_to_do(said: str, hint: str) -> None:
    with fakes(lambda words: Error(said) if words[0] == b"AUTH" else b"x") as ports:
        down = client(ports, login="me:secret@").ask([get(b"a")])[0]
        assert isinstance(down, Down)
        assert said in down
        assert hint in down
        assert "secret" not in down


def test_a_missing_login_is_down_and_says_what_to_do() -> None:
    with fakes(lambda words: Error("NOAUTH Authentication required.")) as ports:
        asker = client(ports)
        assert "put it into the URL" in asker.ask([get(b"a")])[0]
        assert isinstance(asker.ask_node(Node("127.0.0.1", ports[0]), [("PING",)])[0], Down)


def test_login_and_database_come_first() -> None:
    seen: list[Words] = []

    def note(words: Words) -> Any:
        seen.append(words)
        return "OK"

    with fakes(note) as ports:
        settings_ = SharedSettings(f"valkey://me:secret@127.0.0.1:{ports[0]}/3")
        asker = Client(settings_, clock=FakeClock())
        asker.ask([get(b"a")])
        asker.close()
    assert seen == [[b"AUTH", b"me", b"secret"], [b"SELECT", b"3"], [b"GET", b"a"]]


def test_a_script_that_is_new_is_sent_in_full() -> None:
    known: list[bytes] = []

    def runs(words: Words) -> Any:
        if words[0] == b"EVALSHA":
            return words[3] if known else Error("NOSCRIPT No matching script.")
        known.append(words[1])
        return words[3]

    script = Script("return KEYS[1]")
    with fakes(runs) as ports:
        asker = client(ports)
        requests = [Request(key, script.words([key], [])) for key in (b"a", b"b")]
        assert asker.ask(requests) == [b"a", b"b"]
        assert known == [b"return KEYS[1]"]
        assert asker.ask(requests) == [b"a", b"b"]
        assert len(known) == 1
        known.clear()  # the server forgets it
        assert asker.ask(requests) == [b"a", b"b"]
        assert known == [b"return KEYS[1]"] * 2
        known.clear()
        assert asker.ask_node(asker.primaries()[0], [script.words([b"c"])]) == [b"c"]
        known.clear()
        stranger = Request(b"a", ("EVALSHA", "0" * 40, 1, b"a"))
        assert "NOSCRIPT" in asker.ask([stranger])[0]


@pytest.mark.parametrize("said", ["LOADING x", "TRYAGAIN x", "CLUSTERDOWN x", "MASTERDOWN x", "BUSY x"])
def test_what_passes_is_waited_for(said: str) -> None:
    with fakes(scripted(Error(said), Error(said), b"a")) as ports:
        asker = client(ports)
        assert asker.ask([get(b"a")]) == [b"a"]
        assert asker.status()["waits"] == 2


def test_what_does_not_pass_is_down_and_then_left_alone() -> None:
    with fakes(lambda words: Error("LOADING the data")) as ports:
        clock = FakeClock()
        asker = client(ports, clock)
        assert "says: LOADING" in asker.ask([get(b"a")])[0]
        assert 1000.4 < clock.monotonic() <= 1000.5
        assert "left alone" in asker.ask([get(b"a")])[0]


def test_a_node_of_a_cluster_that_is_asked_as_if_alone_says_so() -> None:
    with fakes(lambda words: Error("MOVED 5 127.0.0.1:1")) as ports:
        assert "?cluster=true" in client(ports).ask([get(b"a")])[0]
    with fakes(lambda words: Error("ERR This instance has cluster support disabled")) as ports:
        asker = client(ports, cluster=True)
        assert "leave out" in asker.ask([get(b"a")])[0]
        with pytest.raises(TierError):
            asker.primaries()
        assert asker.node_of(b"a") is None


def test_a_closed_client_says_so() -> None:
    with fakes(lambda words: b"x") as ports:
        asker = client(ports)
        asker.ask([get(b"a")])
        asker.close()
        asker.close()
        with pytest.raises(TierClosedError):
            asker.ask([get(b"a")])
        assert asker.status()["connections"] == 0


def test_connections_are_bounded_and_waited_for() -> None:
    inside, most, lock = Counter[str](), list[int](), threading.Lock()

    def watch(words: Words) -> Any:
        with lock:
            inside["now"] += 1
            most.append(inside["now"])
        with lock:
            inside["now"] -= 1
        return words[1]

    with fakes(watch) as ports:
        asker = client(ports, connections=2, timeout_seconds=30)
        found: list[Any] = []
        threads = [
            threading.Thread(target=lambda n=n: found.extend(asker.ask([get(b"%d" % n)] * 20))) for n in range(12)
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == sorted(b"%d" % n for n in range(12) for _ in range(20))
        assert int(asker.status()["opened"]) <= 2


def test_an_interrupted_call_leaves_its_connection_to_nobody() -> None:
    with fakes(lambda words: words[1]) as ports:
        asker = client(ports, connections=1)
        assert asker.ask([get(b"a")]) == [b"a"]
        with pytest.raises(TypeError):
            asker.ask([get(b"a"), Request(b"a", ("SET", 1.5))])  # type: ignore[arg-type]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Wire, "settle", interrupted)
            for _ in range(3):
                with pytest.raises(KeyboardInterrupt):
                    asker.ask([get(b"evil")])
        assert asker.ask([get(b"b")]) == [b"b"]
        assert asker.status()["connections"] == 1


def interrupted(wire: Wire, limit: Limit) -> None:
    """A question is out, and then the user presses Ctrl-C."""
    wire.start(limit)
    raise KeyboardInterrupt


def test_who_finds_all_connections_busy_is_down_but_the_node_is_not() -> None:
    go, inside = threading.Event(), threading.Event()

    def holds(words: Words) -> Any:
        inside.set()
        go.wait(10)
        return words[1]

    with fakes(holds) as ports:
        asker = client(ports, connections=1, timeout_seconds=10)
        hasty = asker._settings.__class__(asker._settings.url, connections=1, timeout_seconds=0.01)
        first: list[Any] = []
        thread = threading.Thread(target=lambda: first.extend(asker.ask([get(b"a")])))
        thread.start()
        assert inside.wait(10)
        asker._settings = hasty
        assert "busy" in asker.ask([get(b"b")])[0]
        go.set()
        thread.join()
        assert first == [b"a"]
        assert asker.status()["breakers_open"] == 0


class Nodes:
    """Three nodes that hold what `owner` says, and answer GET with the key; every now and then something is amiss."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.owner: dict[int, int] = {}
        """By slot, where it is not the even share."""
        self.amiss: dict[bytes, list[str]] = {}
        """What to say to a key before the reply."""
        self.lock = threading.Lock()
        self.asking: set[tuple[int, int]] = set()

    def answer(self, number: int) -> Answer:
        def say(words: Words) -> Any:
            if words[0] == b"CLUSTER":
                return slots_of(self.ports)
            if words[0] == b"ASKING":
                self.asking.add((number, threading.get_ident()))
                return "OK"
            asking = (number, threading.get_ident()) in self.asking
            self.asking.discard((number, threading.get_ident()))
            slot = slot_of(words[1])
            owner = self.owner.get(slot, slot * 3 // 16384)
            with self.lock:
                amiss = self.amiss.get(words[1], [])
                if owner != number and not asking:
                    return Error(f"MOVED {slot} 127.0.0.1:{self.ports[owner]}")
                if amiss:
                    said = amiss.pop()
                    return Error(f"ASK {slot} 127.0.0.1:{self.ports[number - 1]}" if said == "ASK" else f"{said} x")
            return words[1]

        return say


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    with fakes(*(made.answer(n) for n in range(3))) as ports:
        made.ports = ports
        yield made


keys = st.lists(st.binary(max_size=3), min_size=1, max_size=12)
troubles = st.lists(st.sampled_from(["ASK", "TRYAGAIN", "LOADING", "CLUSTERDOWN"]), max_size=3)


@settings(max_examples=25)
@given(keys, st.data())
def test_any_requests_keep_their_order_through_any_redirections(nodes: Nodes, asked: list[bytes], data: Any) -> None:
    slots = sorted({slot_of(key) for key in asked})
    nodes.owner = {slot: data.draw(st.integers(0, 2)) for slot in slots}
    nodes.amiss = {key: data.draw(troubles) for key in sorted(set(asked))}
    asker = client(nodes.ports[:1], cluster=True, timeout_seconds=30)
    assert asker.ask([get(key) for key in asked]) == asked
    assert asker.ask([get(key) for key in reversed(asked)]) == asked[::-1]
    asker.close()


def test_a_move_is_learned(nodes: Nodes) -> None:
    nodes.amiss = {}
    slot = slot_of(b"a")
    nodes.owner = {slot: (slot * 3 // 16384 + 1) % 3}
    asker = client(nodes.ports, cluster=True)
    assert asker.ask([get(b"a")]) == [b"a"]
    assert asker.status()["moved"] == 1
    where = asker.node_of(b"a")
    assert where is not None
    assert where.port in nodes.ports
    assert asker.ask_node(where, [("GET", b"a")]) == [b"a"]
    assert [str(node) for node in asker.primaries()] == [f"127.0.0.1:{port}" for port in nodes.ports]


def test_nodes_that_send_us_round_in_circles_end_as_down() -> None:
    ports: list[int] = []

    def other(number: int) -> Answer:
        def say(words: Words) -> Any:
            if words[0] == b"CLUSTER":
                return slots_of(ports)
            return Error(f"MOVED {slot_of(words[1])} 127.0.0.1:{ports[1 - number]}")

        return say

    with fakes(other(0), other(1)) as listening:
        ports += listening
        assert "says: MOVED" in client(ports, cluster=True).ask([get(b"a")])[0]


@pytest.mark.parametrize("alive", [1, 2])
def test_one_node_that_is_gone_costs_only_its_own_requests(alive: int) -> None:
    with fakes(lambda words: b"x") as gone:
        pass
    ports: list[int] = []

    def share(words: Words) -> Any:
        return slots_of([*ports, *gone]) if words[0] == b"CLUSTER" else words[1]

    with fakes(*[share] * alive) as listening:
        ports += listening
        asker = client(ports, cluster=True)
        asked = [b"%d" % n for n in range(30)]
        for _ in range(2):
            for key, reply in zip(asked, asker.ask([get(key) for key in asked]), strict=True):
                assert reply == key if slot_of(key) * (alive + 1) // 16384 < alive else isinstance(reply, Down)


def test_one_node_that_is_silent_does_not_keep_the_replies_of_others() -> None:
    go = threading.Event()
    ports: list[int] = []

    def share(number: int) -> Answer:
        def say(words: Words) -> Any:
            if number and words[0] != b"CLUSTER":
                go.wait(10)
            return slots_of(ports) if words[0] == b"CLUSTER" else words[1]

        return say

    with fakes(share(0), share(1)) as listening:
        ports += listening
        asker = client(ports[:1], cluster=True, timeout_seconds=0.2)
        asked = [b"%d" % n for n in range(20)]
        for key, reply in zip(asked, asker.ask([get(key) for key in asked]), strict=True):
            assert isinstance(reply, Down) if slot_of(key) >= 8192 else reply == key
        assert asker.status()["timeouts"] == 1
        go.set()


def test_a_node_that_cannot_be_dialled_leaves_time_for_others() -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)  # with its queue full, the kernel lets further callers wait
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        ports: list[int] = []

        def share(words: Words) -> Any:
            return slots_of([full.getsockname()[1], *ports]) if words[0] == b"CLUSTER" else words[1]

        with fakes(share) as listening:
            ports += listening
            asker = client(ports, SystemClock(), cluster=True, timeout_seconds=1.0)
            asked = sorted((b"%d" % n for n in range(20)), key=slot_of)
            for key, reply in zip(asked, asker.ask([get(key) for key in asked]), strict=True):
                assert reply == key if slot_of(key) >= 8192 else "no connection in time" in reply


def test_replicas_answer_and_the_primary_where_they_do_not() -> None:
    seen: list[tuple[int, bytes]] = []
    ports: list[int] = []
    well = [True]

    def say(number: int) -> Answer:
        def answer(words: Words) -> Any:
            if words[0] == b"CLUSTER":
                return slots_of(ports[:1], ports[1:])
            seen.append((number, words[0]))
            if number and not well[0]:
                return Error("MASTERDOWN Link with MASTER is down")
            return "OK" if words[0] == b"READONLY" else words[1]

        return answer

    with fakes(say(0), say(1)) as listening:
        ports += listening
        asker = client(ports, cluster=True, replica_reads=True)
        assert asker.ask([get(b"a", replica=True), get(b"b")]) == [b"a", b"b"]
        assert sorted(seen) == [(0, b"GET"), (1, b"GET"), (1, b"READONLY")]
        seen.clear()
        well[0] = False
        assert asker.ask([get(b"a", replica=True)]) == [b"a"]
        assert seen == [(1, b"GET"), (0, b"GET")]
        seen.clear()
        assert client(ports, cluster=True).ask([get(b"a", replica=True)]) == [b"a"]
        assert seen == [(0, b"GET")]


def test_who_comes_when_the_first_look_has_just_ended_need_not_look_again() -> None:
    """Another thread's look may end between seeing that nothing is known and asking for a look."""

    class Told(Routes):
        def find(self, key: bytes | None, replica: bool, limit: Limit) -> Peer:
            raise NotImplementedError

        def primaries(self, limit: Limit) -> list[Node]:
            raise NotImplementedError

        def _look(self) -> None:
            pass

    clock = FakeClock()
    settings = SharedSettings("valkey://127.0.0.1:1?cluster=true")
    routes = Told(Address.parse(settings), cast(Any, SimpleNamespace(monotonic=clock.monotonic)), 1.0)
    limit = Limit(clock.monotonic, 1.0)
    routes._first(limit)
    routes._first(limit)  # too soon for a look of its own
    assert routes.failure == ""
