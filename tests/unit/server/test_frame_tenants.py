"""Whose request is it: API keys, front proxies, and headers that are part of the realm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache import Cache
from mmcache.model.errors import ProxyError
from mmcache.server.accounts import Accounts
from mmcache.server.config import TrustRules
from mmcache.server.tenants import Tenants

FRONT = TrustRules(front_token="a front proxy's token")
TOKEN = (b"x-mmcache-front-token", b"a front proxy's token")


@pytest.fixture(scope="module")
def cache() -> Iterator[Cache]:
    with Cache(memory="1MiB", secret=bytes(32)) as opened:
        yield opened


def tenants(cache: Cache, trust: TrustRules = TrustRules()) -> Tenants:  # noqa: B008 - frozen
    return Tenants(cache, trust, Accounts())


def tenant(found: Tenants, *headers: tuple[bytes, bytes], query: bytes = b"", peer: str | None = "127.0.0.1") -> str:
    return found.see(list(headers), query, peer).principal.tenant


def realm(found: Tenants, *headers: tuple[bytes, bytes], query: bytes = b"") -> tuple[str, str]:
    principal = found.see(list(headers), query, "127.0.0.1").principal
    return principal.tenant, principal.namespace


def bearer(key: bytes) -> tuple[bytes, bytes]:
    return (b"authorization", b"Bearer " + key)


def test_a_tenant_is_a_keyed_hash_of_the_key(cache: Cache) -> None:
    found = tenants(cache)
    one, two = tenant(found, bearer(b"sk-one")), tenant(found, bearer(b"sk-two"))
    assert one != two
    assert one.startswith("key:")
    assert len(one) == 36
    assert tenant(tenants(cache), bearer(b"sk-one")) == one
    with Cache(memory="1MiB", secret=b"1" * 32) as other:
        assert tenant(tenants(other), bearer(b"sk-one")) != one


def test_no_key_stands_in_the_clear_in_what_is_remembered(cache: Cache) -> None:
    found = tenants(cache, FRONT)
    found.see([bearer(b"sk-secret-one"), (b"cookie", b"session=secret-two"), TOKEN], b"", "127.0.0.1")
    known = found._known
    told = repr([(label, [getattr(p, name) for name in ("tenant", "namespace", "yes")]) for label, p in known.items()])
    assert b"secret" not in told.encode()
    assert all(len(label) == 32 for label in known)


def test_without_a_key_nothing_is_served_unless_the_operator_says_so(cache: Cache) -> None:
    for headers in ([], [(b"authorization", b"Bearer ")], [(b"authorization", b"")], [(b"api-key", b" ")]):
        with pytest.raises(ProxyError) as raised:
            tenant(tenants(cache), *headers)
        assert raised.value.status == 401
        assert tenant(tenants(cache, TrustRules(anonymous="open")), *headers) == "open"
    assert tenant(tenants(cache, TrustRules(anonymous="open")), bearer(b"k")).startswith("key:")


@pytest.mark.parametrize(
    "headers",
    [
        [bearer(b"a"), bearer(b"b")],
        [bearer(b"a"), bearer(b"a")],
        [bearer(b"a"), (b"api-key", b"b")],
        [(b"x-api-key", b"a"), (b"api-key", b"b")],
        [(b"x-api-key", b"a"), (b"x-api-key", b"b")],
        [bearer(b"a"), (b"authorization", b"Basic a")],
    ],
)
def test_two_keys_are_refused(cache: Cache, headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(ProxyError) as raised:
        tenant(tenants(cache), *headers)
    assert raised.value.status == 400


def test_the_same_key_in_another_header_is_another_realm_of_the_same_tenant(cache: Cache) -> None:
    """An upstream may believe one header only, and take who sends the other one for nobody."""
    found = tenants(cache)
    forms = [[bearer(b"k")], [(b"api-key", b"k")], [(b"x-api-key", b"k")], [bearer(b"k"), (b"api-key", b"k")],
             [(b"authorization", b"k")], [(b"authorization", b"Basic k")]]  # fmt: skip
    assert len({realm(found, *headers) for headers in forms}) == len(forms)
    assert {tenant(found, *headers) for headers in forms[:5]} == {found.of_key("k")}
    assert realm(found, (b"authorization", b"bearer  k ")) == realm(found, bearer(b"k"))
    assert realm(found, bearer(b"k"))[1] == "default"


def test_the_tenant_of_a_key_can_be_told(cache: Cache) -> None:
    found = tenants(cache)
    assert {found.of_key(each) for each in ("k", " k ", "Bearer k", "bearer  k")} == {tenant(found, bearer(b"k"))}
    assert found.of_key("Basic k") == tenant(found, (b"authorization", b"Basic k"))
    for nothing in ("", " ", "Bearer "):
        with pytest.raises(ProxyError):
            found.of_key(nothing)


def test_realms_are_in_the_namespace_of_the_cache() -> None:
    with Cache(memory="1MiB", secret=bytes(32), namespace="models") as other:
        found = tenants(other)
        assert realm(found, bearer(b"k"))[1] == "models"
        assert realm(found, bearer(b"k"), (b"x-anything", b"1"))[1].startswith("models+")


VARYING = [
    (b"openai-organization", b"org-1"), (b"openai-project", b"p"), (b"openai-beta", b"assistants=v2"),
    (b"accept-language", b"de"), (b"cookie", b"a=b"), (b"x-anything", b"1"), (b"accept", b"text/csv"),
    (b"content-type", b"application/json; charset=latin-1"), (b"x-http-method-override", b"PUT"),
    (b"range", b"bytes=0-1"), (b"openai_organization", b"org-1"), (b"x-lora", b"a"),
]  # fmt: skip


def test_a_header_that_may_change_an_answer_is_part_of_the_realm(cache: Cache) -> None:
    found = tenants(cache)
    seen = [realm(found, bearer(b"k"))]
    seen += [realm(found, bearer(b"k"), header) for header in VARYING]
    seen += [realm(found, bearer(b"k"), (name, value + b"2")) for name, value in VARYING]
    seen += [realm(found, bearer(b"k"), query=b"api-version=1"), realm(found, bearer(b"k"), query=b"api-version=2")]
    assert len(set(seen)) == len(seen)
    assert len({name for name, _ in seen}) == 1


def test_headers_that_are_known_to_be_harmless_share(cache: Cache) -> None:
    found = tenants(cache)
    plain = realm(found, bearer(b"k"))
    for header in [
        (b"user-agent", b"curl"), (b"x-request-id", b"1"), (b"traceparent", b"00-1"), (b"accept", b"*/*"),
        (b"accept", b"text/event-stream"), (b"content-type", b"application/json"), (b"x-stainless-lang", b"python"),
        (b"content-type", b"multipart/form-data; boundary=1"), (b"host", b"a"), (b"connection", b"keep-alive"),
        (b"x-forwarded-for", b"1.2.3.4"), (b"cache-control", b"no-cache"), (b"x-mmcache", b"hit"),
        (b"x-mmcache-anything", b"1"),
    ]:  # fmt: skip
        assert realm(found, bearer(b"k"), header) == plain, header
    listed = tenants(cache, TrustRules(harmless_headers=("X-Mesh-Hop",)))
    assert realm(listed, bearer(b"k"), (b"x-mesh-hop", b"7")) == plain


def test_the_order_of_different_headers_is_nothing_and_of_equal_ones_is_something(cache: Cache) -> None:
    found = tenants(cache)
    a, b, c = (b"x-a", b"1"), (b"x-b", b"2"), (b"x-a", b"3")
    assert realm(found, bearer(b"k"), a, b) == realm(found, b, a, bearer(b"k"))
    assert realm(found, bearer(b"k"), a, c) != realm(found, bearer(b"k"), c, a)


HEADERS = st.lists(
    st.tuples(st.sampled_from([b"x-a", b"x-b", b"x-a:x"]), st.sampled_from([b"", b"1", b"x-b:1"])), max_size=4
)


@given(HEADERS, HEADERS)
def test_two_sets_of_headers_meet_only_where_they_are_equal(
    one: list[tuple[bytes, bytes]], two: list[tuple[bytes, bytes]]
) -> None:
    def plain(headers: list[tuple[bytes, bytes]]) -> list[bytes]:
        return [
            n + b":" + v for n, v in sorted(headers, key=lambda pair: (pair[0] + b":" + pair[1]).partition(b":")[0])
        ]

    with Cache(memory="1MiB", secret=bytes(32)) as cache:
        found = tenants(cache)
        assert (realm(found, bearer(b"k"), *one) == realm(found, bearer(b"k"), *two)) == (plain(one) == plain(two))


# Front proxies ------------------------------------------------------------------------------------------------------


def test_a_front_proxy_that_proves_itself_names_the_tenant(cache: Cache) -> None:
    found = tenants(cache, FRONT)
    named = tenant(found, TOKEN, (b"x-mmcache-tenant", b"payments"))
    assert named == "payments"
    assert tenant(found, TOKEN, (b"x-mmcache-tenant", b"payments"), bearer(b"k")) == "payments"
    assert found.see([TOKEN, (b"x-mmcache-tenant", b"payments")], b"", "127.0.0.1").principal.shared
    assert tenant(found, TOKEN, bearer(b"k")).startswith("key:")
    assert tenant(found, TOKEN, (b"x-mmcache-tenant", b"a"), peer="::1") == "a"
    assert tenant(found, TOKEN, (b"x-mmcache-tenant", b"a"), peer="::ffff:127.0.0.1") == "a"


@pytest.mark.parametrize(
    ("headers", "peer", "status"),
    [
        ([(b"x-mmcache-tenant", b"a")], "127.0.0.1", 403),
        ([(b"x-mmcache-tenant", b"a"), (b"x-mmcache-front-token", b"wrong")], "127.0.0.1", 403),
        ([(b"x-mmcache-front-token", b"wrong")], "127.0.0.1", 403),
        ([(b"x-mmcache-tenant", b"a"), TOKEN], "10.0.0.1", 403),
        ([(b"x-mmcache-tenant", b"a"), TOKEN], None, 403),
        ([(b"x-mmcache-tenant", b"a"), TOKEN], "nonsense", 403),
        ([(b"x-mmcache-tenant", b"a"), (b"x-mmcache-tenant", b"b"), TOKEN], "127.0.0.1", 400),
        ([(b"x-mmcache-tenant", b"a"), (b"x-mmcache-tenant", b"a"), TOKEN], "127.0.0.1", 400),
        ([(b"x-mmcache-tenant", b"a"), TOKEN, TOKEN], "127.0.0.1", 400),
        ([(b"x-mmcache-tenant", b"key:00"), TOKEN], "127.0.0.1", 400),
        ([(b"x-mmcache-tenant", b"a+b"), TOKEN], "127.0.0.1", 400),
        ([(b"x-mmcache-tenant", b""), TOKEN], "127.0.0.1", 400),
        ([(b"x-mmcache-tenant", b"\xff"), TOKEN], "127.0.0.1", 400),
    ],
)
def test_who_only_says_so_is_refused(
    cache: Cache, headers: list[tuple[bytes, bytes]], peer: str | None, status: int
) -> None:
    for key in ([], [bearer(b"k")]):
        with pytest.raises(ProxyError) as raised:
            tenant(tenants(cache, FRONT), *headers, *key, peer=peer)
        assert raised.value.status == status


def test_where_no_front_proxy_is_known_nobody_is_believed(cache: Cache) -> None:
    for token in (b"", b"None"):
        with pytest.raises(ProxyError) as raised:
            tenant(tenants(cache), bearer(b"k"), (b"x-mmcache-tenant", b"a"), (b"x-mmcache-front-token", token))
        assert raised.value.status == 403


def test_what_was_believed_of_one_peer_is_not_believed_of_another(cache: Cache) -> None:
    found = tenants(cache, FRONT)
    assert tenant(found, TOKEN, (b"x-mmcache-tenant", b"a")) == "a"
    with pytest.raises(ProxyError):
        tenant(found, TOKEN, (b"x-mmcache-tenant", b"a"), peer="10.0.0.1")


def test_names_of_the_three_kinds_never_meet(cache: Cache) -> None:
    both = TrustRules(anonymous="open", front_token=FRONT.front_token)
    with pytest.raises(ProxyError):
        tenant(tenants(cache, both), TOKEN, (b"x-mmcache-tenant", b"open"))


# Hop by hop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "named", [b"authorization", b"close, Authorization", b"content-type", b"x-mmcache-tenant", b"host"]
)
def test_connection_may_not_name_what_every_hop_needs(cache: Cache, named: bytes) -> None:
    with pytest.raises(ProxyError) as raised:
        tenant(tenants(cache), bearer(b"k"), (b"connection", named))
    assert raised.value.status == 400


def test_what_connection_names_is_still_part_of_the_realm(cache: Cache) -> None:
    found = tenants(cache)
    dropped = realm(found, bearer(b"k"), (b"openai-beta", b"1"), (b"connection", b"openai-beta"))
    assert dropped != realm(found, bearer(b"k"), (b"openai-beta", b"1"))
    assert dropped != realm(found, bearer(b"k"))


def test_only_so_many_are_remembered(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmcache.server.tenants.REMEMBERED", 8)
    monkeypatch.setattr("mmcache.server.accounts.REMEMBERED", 8)
    found = tenants(cache)
    for number in range(50):
        tenant(found, bearer(b"%d" % number))
    assert len(found._known) == 8
    assert len(found._accounts._by_caller) == 8
