"""Where a URL that a user gave may lead."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from holdfast.errors import TargetNotAllowed, UsageError
from holdfast.values.addresses import CLOSED_PORTS, is_open, is_open_port, networks, read_target
from tests.closed_addresses import CLOSED

MORE = [
    "168.63.129.16",
    "203.0.113.9",
    "198.51.100.1",
    "192.0.2.7",
    "3fff::1",
    "3ffe::1",
    "2001:20::1",
    "4000::1",
    "8000::1",
]
OPEN = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "192.169.0.0",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001::200e",
    "2001:200::1",
    "64:ff9b::808:808",
    "::ffff:8.8.8.8",
]


def test_there_are_37_of_them() -> None:
    assert len(set(CLOSED)) == 37


@pytest.mark.parametrize("address", CLOSED + MORE)
def test_an_address_that_leads_inside_is_closed(address: str) -> None:  # E61
    assert not is_open(ip_address(address))
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(TargetNotAllowed, match="not a public one"):
        read_target(f"https://{host}/hook")


@pytest.mark.parametrize("address", OPEN)
def test_an_ordinary_address_is_open(address: str) -> None:
    assert is_open(ip_address(address))


@pytest.mark.parametrize(
    ("setting", "address", "opened"),
    [
        ("127.0.0.0/8", "127.0.0.1", True),
        ("127.0.0.0/8", "::ffff:127.0.0.1", True),
        ("127.0.0.0/8", "10.0.0.1", False),
        ("10.1.0.0/16, fd00::/8", "fd00:ec2::1", True),
        ("10.1.0.0/16 fd00::/8", "10.2.0.1", False),
        ("::1/128", "::1", True),
    ],
)
def test_networks_may_be_opened(setting: str, address: str, opened: bool) -> None:
    assert is_open(ip_address(address), networks(setting)) is opened


@pytest.mark.parametrize("setting", ["localhost", "10.0.0.1/8", "10.0.0.0/33", "*"])
def test_a_setting_that_names_no_network_is_refused(setting: str) -> None:
    with pytest.raises(UsageError, match="not a network"):
        networks(setting)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.com",
        "file:///etc/passwd",
        "gopher://hooks.example.com/",
        "ftp://hooks.example.com/",
        "javascript:alert(1)",
        "http:/hooks.example.com",
        "http:hooks.example.com",
        "https:///hook",
        "//hooks.example.com/",
        "\\\\hooks.example.com\\share",
        "http:\\\\hooks.example.com",
        "http://hooks.example.com\\@127.0.0.1/",
        "http://a@127.0.0.1/",
        "http://user:word@hooks.example.com/",
        "http://hooks.example.com@/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.0.0.1./",
        "http://①②⑦.⓪.⓪.①/",
        "http://hooks.example.com。/",
        "http://[fe80::1%25eth0]/",
        "http://[::1/",
        "http://[::ffff:127.0.0.1]/",
        "HTTP://[::FFFF:7F00:1]/",
        "http://hooks..example.com/",
        "http://-hooks.example.com/",
        "http://hooks.example.com:0/",
        "http://hooks.example.com:22/",
        "http://hooks.example.com:5432/",
        "http://hooks.example.com:99999/",
        "http://hooks.example.com:port/",
        "http://hooks.example.com/a b",
        "http://hooks.example.com/\r\nHost: other",
        "http://hooks.example.com/\0",
        "http://hooks.example.com/ü",
        "http://hooks.example.com/" + "a" * 3000,
        None,
        7,
        b"http://hooks.example.com/",
    ],
)
def test_what_is_not_plainly_a_web_address_is_refused(url: object) -> None:  # E61
    with pytest.raises(TargetNotAllowed):
        read_target(url)


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "authority"),
    [
        ("https://hooks.example.com", "hooks.example.com", 443, "/", "hooks.example.com"),
        ("HTTPS://Hooks.Example.COM/A?b=c#d", "hooks.example.com", 443, "/A?b=c", "hooks.example.com"),
        ("http://hooks.example.com:8080/x", "hooks.example.com", 8080, "/x", "hooks.example.com:8080"),
        ("http://xn--bcher-kva.example/", "xn--bcher-kva.example", 80, "/", "xn--bcher-kva.example"),
        ("http://9.9.9.9/", "9.9.9.9", 80, "/", "9.9.9.9"),
        ("http://[2620:fe::fe]:8443/", "2620:fe::fe", 8443, "/", "[2620:fe::fe]:8443"),
        ("http://4chan.example/", "4chan.example", 80, "/", "4chan.example"),
    ],
)
def test_an_ordinary_url_is_read(url: str, host: str, port: int, path: str, authority: str) -> None:
    target = read_target(url)
    assert (target.host, target.port, target.path, target.authority) == (host, port, path, authority)


def test_services_that_do_not_speak_http_are_not_spoken_to() -> None:
    assert [port for port in (80, 443, 1024, 8000, 8080, 8443, 9000, 65535) if not is_open_port(port)] == []
    assert [
        port for port in (-1, 0, 21, 22, 25, 53, 81, 1023, 65536, *CLOSED_PORTS) if is_open_port(port)
    ] == []
