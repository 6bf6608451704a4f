"""Check which addresses and ports a URL from a user may lead to, against explicit tables. Pure.

The standard library's `is_global` is not used: it changes between Python versions and accepts addresses that
lead back inside (`64:ff9b::a9fe:a9fe` is a cloud's metadata service behind NAT64). An address that is not
known to be public is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from urllib.parse import urlsplit

from holdfast.errors import TargetNotAllowed, UsageError

Address = IPv4Address | IPv6Address
PRIVATE = (
    "its address is not a public one; HOLDFAST_OUTBOUND_ALLOW opens networks of your own, e.g. 10.1.0.0/16"
)
Network = IPv4Network | IPv6Network

_CLOSED_V4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # behind a carrier's NAT; some clouds' metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # the inner service of a large cloud, at a public-looking address
        "169.254.0.0/16",  # link-local; metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
#: The part of IPv6 that is allocated for public use …
_OPEN_V6 = IPv6Network("2000::/3")
#: … and the blocks in it that are not public.
_CLOSED_V6 = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address inside
        "3ffe::/16",  # 6bone, returned
        "3fff::/20",  # documentation
    )
)
#: IPv6 blocks that carry an IPv4 address in their last 32 bits (mapped, NAT64). The IPv4 address is checked.
_WRAPPED_V4 = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))

#: Ports above 1023 that must not receive HTTP: databases, brokers and control planes listen there.
CLOSED_PORTS = frozenset(
    {
        1433, 1434, 1521, 2049, 2181, 2375, 2376, 2379, 2380, 3306, 3389, 4222, 4369, 5432, 5433, 5671, 5672, 5900,
        5984, 6379, 6380, 6432, 6443, 7000, 7001, 7199, 8500, 9042, 9092, 9160, 9200, 9300, 10250, 10255, 11211,
        15672, 25672, 26379, 27017, 27018, 27019, 33060,
    }
)  # fmt: skip
#: The only open ports below 1024.
OPEN_PORTS = frozenset({80, 443})

LONGEST_URL = 2048
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTarget:
    """A URL whose text is allowed. A host name must be resolved and its address checked before a call."""

    url: str
    scheme: str
    host: str  #: lower case; an IPv6 address without brackets
    port: int
    path: str  #: with the query
    address: Address | None  #: the parsed host; None when the host is a name

    @property
    def authority(self) -> str:
        """The value of the Host header: the port is left out when it is the default of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.scheme == "https" else 80
        return host if self.port == usual else f"{host}:{self.port}"


def networks(text: str) -> tuple[Network, ...]:
    """Parse the networks in a setting such as "10.1.0.0/16, 127.0.0.0/8".

    Raises `UsageError` for a word that is not a network.
    """
    parsed = []
    for word in filter(None, re.split(r"[\s,]+", text)):
        try:
            parsed.append(ip_network(word))
        except ValueError:
            raise UsageError(
                f"{word[:60]!r} is not a network; write addresses with a prefix, e.g. 10.1.0.0/16 or fd00::/8"
            ) from None
    return tuple(parsed)


def is_open(address: Address, allowed: Sequence[Network] = ()) -> bool:
    """Return whether a call may go to *address*: it is public, or in one of the *allowed* networks."""
    inner = _unwrapped(address)
    if any(inner in network for network in allowed if network.version == inner.version):
        return True
    if isinstance(inner, IPv4Address):
        return not any(inner in network for network in _CLOSED_V4)
    return inner in _OPEN_V6 and not any(inner in network for network in _CLOSED_V6)


def _unwrapped(address: Address) -> Address:
    if isinstance(address, IPv6Address) and any(address in network for network in _WRAPPED_V4):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def is_open_port(port: int) -> bool:
    return port in OPEN_PORTS or (1024 <= port <= 65535 and port not in CLOSED_PORTS)


def read_target(url: object, allowed: Sequence[Network] = ()) -> NetworkTarget:
    """Parse a URL from a user and check it.

    Hosts that some resolvers read as a number are refused, not interpreted.

    Raises:
        TargetNotAllowed: The URL is not plainly http(s)://host[:port]/path, or its port or address is closed.
    """
    if not isinstance(url, str) or not 1 <= len(url) <= LONGEST_URL:
        raise TargetNotAllowed(f"it is not a string of 1 to {LONGEST_URL:,} characters")
    if any(not "!" <= character <= "~" or character == "\\" for character in url):
        raise TargetNotAllowed("it contains characters that must be written as %XX (in a host: as xn--…)")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        raise TargetNotAllowed("it cannot be parsed") from None
    scheme = parts.scheme.lower()
    if scheme not in ("http", "https") or not url[len(scheme) :].startswith("://"):
        raise TargetNotAllowed("it must begin with https:// or http://")
    if "@" in parts.netloc:
        raise TargetNotAllowed("it contains a user name; authenticate by the signature instead")
    port = (443 if scheme == "https" else 80) if port is None else port
    if not is_open_port(port):
        raise TargetNotAllowed(
            f"port {port} is closed; use 80, 443, or a port above 1023 that no database uses"
        )
    address = _read_host(host)
    if address is not None and not is_open(address, allowed):
        raise TargetNotAllowed(PRIVATE)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return NetworkTarget(url=url, scheme=scheme, host=host, port=port, path=path, address=address)


def _read_host(host: str) -> Address | None:
    """Return the address that *host* spells, or None when it is a name."""
    try:
        if ":" in host:
            if "%" in host:
                raise TargetNotAllowed("its address contains a zone")
            return IPv6Address(host)
        last = host.rstrip(".").rpartition(".")[2]
        if not _NUMBER.fullmatch(last):
            if not _NAME.fullmatch(host) or len(host) > 253:
                raise TargetNotAllowed("its host is not a valid name")
            return None
        return IPv4Address(host)
    except AddressValueError:
        raise TargetNotAllowed("its host is neither a valid name nor an address in its usual form") from None
