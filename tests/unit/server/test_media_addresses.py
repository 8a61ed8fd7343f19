"""The guard against request forgery, as a pure function."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.errors import ProxyError
from mmcache.server.config import FetchRules
from mmcache.server.media.addresses import public, redirected, target

OPEN = FetchRules(allowed=True, schemes=("https", "http"))

NOT_PUBLIC = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255",
    "127.0.0.1", "127.255.255.254", "169.254.0.1", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255",
    "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.255", "198.18.0.1",
    "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "168.63.129.16",
    "::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:53aa:64c:0:0:f5ff:fffe", "2001:2::1", "2001:10::1",
    "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254",
    "fe80::1", "fe80::1%eth0", "2606:4700::1%eth0", "fec0::1", "ff02::1", "", "localhost", "1.2.3", "8.8.8.8 ",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1",
          "198.20.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::1", "2620:fe::fe"]  # fmt: skip


@pytest.mark.parametrize("number", NOT_PUBLIC)
def test_numbers_that_are_not_of_the_internet(number: str) -> None:
    assert not public(number)


@pytest.mark.parametrize("number", PUBLIC)
def test_numbers_that_are(number: str) -> None:
    assert public(number)


@given(st.ip_addresses())
def test_never_more_than_the_standard_library_calls_global(number: ipaddress.IPv4Address) -> None:
    if public(str(number)):
        assert number.is_global
        assert not any((number.is_multicast, number.is_private, number.is_reserved, number.is_loopback))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/a", "file:///etc/passwd", "gopher://example.org/", "data:image/png;base64,AA==", "//a/b", "",
        "https://", "https:///a", "https:example.org", "javascript:x",
        "https://user@example.org/", "https://user:pw@example.org/", "https://@example.org/",
        "https://example.org@169.254.169.254/", "https://example.org:443@10.0.0.1/",
        "https://example.org\\@10.0.0.1/", "https://exam ple.org/", "https://example.org/\r\nhost: a", " https://a.b/",
        "https://example.org/\x00", "https://example.org/\t",
        "https://localhost/", "https://LOCALHOST./", "https://a.localhost/", "https://metadata/", "https://router/",
        "https://metadata.google.internal/", "https://printer.local/", "https://nas.lan/", "https://x.home.arpa/",
        "https://127.0.0.1/", "https://127.1/", "https://2130706433/", "https://0x7f000001/", "https://0x7f.1/",
        "https://0177.0.0.1/", "https://00000177.0.0.1/", "https://0x/", "https://127.0.0.1.",
        "https://１２７.0.0.1/", "https://127。0。0。1/", "https://①②⑦.0.0.1/", "https://1.2.3/", "https://999.1.1.1/",
        "https://256.256.256.256/", "https://10.0.0.1:443/", "https://169.254.169.254/latest/meta-data/",
        "https://[::1]/", "https://[::]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/",
        "https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/",
        "https://[2001:db8::1", "https://[v1.x]/", "https://[1.1.1.1]/", "https://[example.org]/",
        "https://example.org:22/", "https://example.org:8443/", "http://example.org:443/", "https://example.org:80/",
        "https://example.org:0/", "https://example.org:99999/", "https://example.org:-1/", "https://example.org:4a/",
        "https://-a.org/", "https://a..org/", "https://.org/", "https://a_\u0000.org/", "https://exa%6dple.org/",
        "https://" + "a" * 64 + ".org/", "https://" + "a." * 130 + "org/", "https://example.org/" + "a" * 5000,
        "https://\ud800.org/", "https://example.org/\ud800", "https://xn--.org/", "https://☃️⁠.com/",
    ],
)  # fmt: skip
def test_addresses_that_are_not_fetched(url: str) -> None:
    with pytest.raises(ProxyError) as error:
        target(url, OPEN)
    assert error.value.code == "remote-media"


@pytest.mark.parametrize(
    ("url", "normalised"),
    [
        ("https://Example.ORG", "https://example.org/"),
        ("HTTPS://example.org:443/a?b=c#d", "https://example.org/a?b=c"),
        ("http://example.org:80/", "http://example.org/"),
        ("https://example.org./a", "https://example.org/a"),
        ("https://bücher.example/ä?ü", "https://xn--bcher-kva.example/%C3%A4?%C3%BC"),
        ("https://example.org/a%2Fb?x=%26&y=[1]", "https://example.org/a%2Fb?x=%26&y=%5B1%5D"),
        ("https://1.1.1.1/a", "https://1.1.1.1/a"),
        ("https://1.1.1.1./a", "https://1.1.1.1/a"),
        ("https://[2606:4700:0:0::1111]/a", "https://[2606:4700::1111]/a"),
    ],
)
def test_addresses_that_are(url: str, normalised: str) -> None:
    assert target(url, OPEN).url == normalised


def test_only_the_schemes_and_hosts_that_are_named() -> None:
    with pytest.raises(ProxyError):
        target("http://example.org/", FetchRules(allowed=True))
    some = FetchRules(allowed=True, hosts=("example.org", ".cdn.example", "files.example:8443", "10.0.0.1"))
    assert target("https://example.org/", some).port == 443
    assert target("https://a.b.cdn.example/", some).host == "a.b.cdn.example"
    assert target("https://files.example:8443/", some).port == 8443
    for url in ("https://cdn.example/", "https://evilcdn.example/", "https://example.org.evil.example/",
                "https://www.example.org/", "https://example.org:8443/", "https://10.0.0.1/"):  # fmt: skip
        with pytest.raises(ProxyError):
            target(url, some)


def test_private_ones_only_where_the_rules_say_so() -> None:
    closed = FetchRules(allowed=True, schemes=("http",), private=True)
    assert target("http://127.0.0.1:8080/a", closed).port == 8080
    assert target("http://localhost/a", closed).host == "localhost"
    with pytest.raises(ProxyError):  # numbers that are spelt oddly stay refused
        target("http://0x7f.1/", closed)


def test_redirects_pass_the_same_guard_and_never_lead_out_of_https() -> None:
    at = target("https://example.org/a/b?c", OPEN)
    assert redirected(at, "d", OPEN).url == "https://example.org/a/d"
    assert redirected(at, "//other.example/x", OPEN).url == "https://other.example/x"
    for location in ("http://example.org/", "https://169.254.169.254/", "//127.0.0.1/", "https://a@example.org/",
                     "https://localhost/", "file:///etc/passwd", "https://[", "\\\\10.0.0.1\\"):  # fmt: skip
        with pytest.raises(ProxyError):
            redirected(at, location, OPEN)


def test_an_error_never_quotes_the_address() -> None:
    with pytest.raises(ProxyError) as error:
        target("https://example.org:1/a?signature=secret", OPEN)
    assert "secret" not in str(error.value)


@given(st.text(max_size=40))
def test_any_text_is_a_target_or_is_refused(text: str) -> None:
    for url in (text, f"https://{text}", f"https://example.org/{text}", f"https://{text}.example/"):
        try:
            found = target(url, OPEN)
        except ProxyError:
            continue
        assert found.url.isascii()
        assert target(found.url, OPEN) == found
