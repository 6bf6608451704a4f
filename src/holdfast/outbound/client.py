"""The one client for URLs that users gave: it resolves once, checks every answer, and connects to that very address.

```text
  URL ──read──▶ host, port ──resolve──▶ addresses ──all open?──▶ connect to one of them
```

Between the check and the connection nobody is asked again, so a name that answers differently the second time gains nothing.
The name stays in Host and in the TLS handshake, so certificates are checked as ever. Redirects are answers like any other,
proxies of the environment are not used, a connection serves one call, and an answer is read up to a bound, as it came.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

import httpx2

from holdfast.domain.addresses import PRIVATE, Address, Network, NetworkTarget, is_open, read_target
from holdfast.errors import TargetNotAllowed

#: The addresses of a host.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

MOST_BYTES = 64_000
MOST_SECONDS = 10.0
#: How many addresses of a name are tried, one after the other.
TRIES = 3


class HostUnreachable(ConnectionError):
    """Nobody answered, or not in HTTP. Why is its cause; its text tells nothing about the network behind it."""


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]  #: by lower-case names
    body: bytes  #: as it came over the wire, at most as much as was asked for


async def look_up(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Outbound:
    """*allowed* are networks that may be called although they are not public. *resolve* is asked once a call."""

    def __init__(
        self,
        *,
        allowed: Sequence[Network] = (),
        resolve: Resolve = look_up,
        context: ssl.SSLContext | None = None,
        seconds: float = MOST_SECONDS,
    ) -> None:
        self._allowed, self._resolve, self._seconds = tuple(allowed), resolve, seconds
        self._context = context

    def check(self, url: str) -> NetworkTarget:
        """`TargetNotAllowed` for a URL that can be seen not to be callable, without asking anybody."""
        return read_target(url, self._allowed)

    async def check_address(self, url: str) -> None:
        """`check`, and that the name leads to no closed address now. One that leads nowhere may do so later."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._addresses(self.check(url))
        except (HostUnreachable, TimeoutError):
            return

    async def call(
        self,
        method: str,
        url: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        most: int = MOST_BYTES,
    ) -> Response:
        """One request, one answer, of which at most *most* bytes are read; all within the client's seconds.

        `TargetNotAllowed` when it must not be made, `TimeoutError` and `HostUnreachable` when it came to nothing.
        """
        target = self.check(url)
        try:
            async with asyncio.timeout(self._seconds):
                return await self._call(method, target, body, headers or {}, most)
        except TimeoutError:
            raise TimeoutError(f"no answer within {self._seconds:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ssl.SSLError) as error:
            if isinstance(error, HostUnreachable):
                raise
            raise HostUnreachable(_why(error)) from error

    async def _call(
        self, method: str, target: NetworkTarget, body: bytes, headers: Mapping[str, str], most: int
    ) -> Response:
        addresses = await self._addresses(target)
        for address in addresses[: TRIES - 1]:
            try:
                return await self._send(method, target, address, body, headers, most)
            except httpx2.ConnectError:  # nothing was sent: another address of the same name may do
                if address == addresses[-1]:
                    raise
        return await self._send(
            method, target, addresses[min(TRIES, len(addresses)) - 1], body, headers, most
        )

    async def _addresses(self, target: NetworkTarget) -> list[str]:
        return await open_addresses(target, self._resolve, lambda one: is_open(one, self._allowed))

    async def _send(
        self,
        method: str,
        target: NetworkTarget,
        address: str,
        body: bytes,
        headers: Mapping[str, str],
        most: int,
    ) -> Response:
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), self._seconds)
        request = httpx2.Request(
            method,
            httpx2.URL(scheme=target.scheme, host=address, port=target.port, raw_path=target.path.encode()),
            headers={
                "host": target.authority,
                "user-agent": "holdfast",
                "accept-encoding": "identity",
                "connection": "close",
                **headers,
            },
            content=body,
            extensions={"timeout": timeout, "sni_hostname": target.host},
        )
        # Made anew for each call: a connection that was opened for one name is never used for another.
        async with httpx2.AsyncHTTPTransport(verify=self._tls(target), trust_env=False) as transport:
            response = await transport.handle_async_request(request)
            try:
                read = await _read(response, most)
            finally:
                await response.aclose()
        told = {name.lower(): value for name, value in response.headers.items()}
        return Response(response.status_code, told, read)

    def _tls(self, target: NetworkTarget) -> ssl.SSLContext:
        """Plain HTTP needs none of this machine's certificates, which take 50 ms to read: it is trusted with nobody's."""
        if target.scheme != "https":
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._context is None:
            self._context = httpx2.create_ssl_context(trust_env=False)
        return self._context


def _why(error: BaseException) -> str:
    """For people: a certificate is worth telling apart, the rest only says what is where."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "its certificate cannot be trusted"
        cause = cause.__cause__ or cause.__context__
    return "it could not be reached"


async def _read(response: httpx2.Response, most: int) -> bytes:
    """The first bytes of the answer as they came: nothing is unpacked, so nothing can unfold."""
    if most <= 0:
        return b""
    read = bytearray()
    async for chunk in response.aiter_raw():
        read += chunk
        if len(read) >= most:
            break
    return bytes(read[:most])


async def open_addresses(
    target: NetworkTarget, resolve: Resolve, admits: Callable[[Address], bool]
) -> list[str]:
    """Every address of the target, each of them admitted: connect to one of these and to nothing else.

    A target that was given as an address was judged when it was read.
    """
    if target.address is not None:
        return [str(target.address)]
    try:
        found = [ip_address(text) for text in await resolve(target.host, target.port)]
    except (OSError, UnicodeError) as error:
        raise HostUnreachable("it could not be reached") from error
    except ValueError:  # an address with a zone: of this machine's own links
        raise TargetNotAllowed(PRIVATE) from None
    if not found:
        raise HostUnreachable("it could not be reached")
    if not all(admits(address) for address in found):
        raise TargetNotAllowed(PRIVATE)
    return [str(address) for address in found]
