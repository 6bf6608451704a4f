"""Rules for which hosts, addresses and ports pages may reach. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address

from holdfast import UsageError
from holdfast.outbound import Address, NetworkTarget, TargetNotAllowed, is_open, read_target

#: Makes `read_target` accept any address: it is checked here, together with the port.
_ANY = (IPv4Network("0.0.0.0/0"), IPv6Network("::/0"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The addresses that pages may reach.

    *ports* are open on every public address. *allowed* are single hosts with their ports that are open
    although they are not public, for tests and sample pages only.
    """

    ports: frozenset[int] = frozenset({80, 443})
    allowed: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Rules:
        """Read the rules from SCREENSHOTS_PORTS ("8080, 8443") and SCREENSHOTS_ALLOW ("127.0.0.1:8001").

        Raises `UsageError` that names an invalid variable.
        """
        ports = {_port("SCREENSHOTS_PORTS", word) for word in _words(environment, "SCREENSHOTS_PORTS")}
        allowed = {_place("SCREENSHOTS_ALLOW", word) for word in _words(environment, "SCREENSHOTS_ALLOW")}
        return cls(ports=frozenset({80, 443} | ports), allowed=frozenset(allowed))

    def target(self, url: str) -> NetworkTarget:
        """Return the target of *url*.

        Raises `TargetNotAllowed` when it is closed by its scheme, host, address or port.
        """
        target = read_target(url, _ANY)
        if target.address is not None and not self.admits(target.host, target.address, target.port):
            raise TargetNotAllowed("the address is not public")
        if target.port not in self.ports and not self._may_be_allowed(target.port):
            raise TargetNotAllowed("the port is closed")
        if _is_local(target.host) and not self._may_be_allowed(target.port):
            raise TargetNotAllowed("the host is this machine")
        return target

    def admits(self, host: str, address: Address, port: int) -> bool:
        """Return whether a page may connect to *address*, which *host* resolves to."""
        if (host.lower(), port) in self.allowed or (str(address), port) in self.allowed:
            return True
        return port in self.ports and is_open(address)

    def _may_be_allowed(self, port: int) -> bool:
        """Return whether a name could resolve to an allowed address with this port."""
        return any(port == allowed for _, allowed in self.allowed)


def _is_local(host: str) -> bool:
    """Return whether RFC 6761 reserves the name for the machine itself."""
    return host.lower().rstrip(".").rpartition(".")[2] == "localhost"


def _words(environment: Mapping[str, str], variable: str) -> list[str]:
    return [word for word in re.split(r"[\s,]+", environment.get(variable, "")) if word]


def _port(variable: str, word: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", word) or not 1 <= int(word) <= 65535:
        raise UsageError(f"{variable} contains {word[:40]!r}; it is a list of ports, e.g. 8080, 8443")
    return int(word)


def _place(variable: str, word: str) -> tuple[str, int]:
    host, colon, port = word.rpartition(":")
    if not colon or not host:
        raise UsageError(f"{variable} contains {word[:60]!r}; it is a list of host:port, e.g. 127.0.0.1:8001")
    host = host.strip("[]").lower()
    try:
        host = str(ip_address(host))
    except ValueError:
        pass  # it is a name
    return host, _port(variable, port)
