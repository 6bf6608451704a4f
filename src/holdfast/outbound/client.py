"""The HTTP client for URLs that users gave: resolve once, check every address, connect to one of them.

```text
  URL ──read──▶ host, port ──resolve──▶ addresses ──all open?──▶ connect to one of them
```

The name is not resolved again between the check and the connection, so a name server that changes its answer
gains nothing. The name stays in the Host header and in the TLS handshake, so certificates are checked as
usual. Redirects are not followed, proxies of the environment are not used, a connection serves one call, and
a response is read up to a limit, without unpacking.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

import httpx2

from holdfast.errors import TargetNotAllowed
from holdfast.values.addresses import PRIVATE, Address, Network, NetworkTarget, is_open, read_target

#: Returns the addresses of a host, given its name and a port.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

MOST_BYTES = 64_000
MOST_SECONDS = 10.0
#: How many addresses of a name are tried, one after the other.
TRIES = 3


class HostUnreachable(ConnectionError):
    """No valid HTTP response came. Its cause says why; its text reveals nothing about the network."""


class Response(NamedTuple):
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]  #: by lower-case names
    body: bytes  #: as it came over the wire, cut at the limit of the call


async def look_up(host: str, port: int) -> Sequence[str]:
    """Return the addresses of *host* from the system's resolver, without repeats."""
    addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in addresses))


class Outbound:
    """Calls URLs that lead to public addresses only.

    Args:
        allowed: Networks that may be called although they are not public.
        resolve: Returns the addresses of a host. Called once per call.
        context: The TLS context. By default it trusts the system's certificates.
        seconds: The timeout of a whole call.
    """

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
        """Return the target of *url* after the checks that need no name resolution.

        Raises:
            TargetNotAllowed: The URL must not be called.
        """
        return read_target(url, self._allowed)

    async def check_address(self, url: str) -> None:
        """Check *url*, and that its name does not resolve to a forbidden address now. An unknown name passes.

        Raises:
            TargetNotAllowed: The URL must not be called.
        """
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
        """Send one request and return the response, of whose body at most *most* bytes are read.

        Raises:
            TargetNotAllowed: The URL must not be called.
            TimeoutError: There was no response in time.
            HostUnreachable: There was no valid HTTP response.
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
            except httpx2.ConnectError:  # nothing was sent, so another address of the same name may be tried
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
        # A new transport for each call: a connection that was opened for one name is never used for another.
        async with httpx2.AsyncHTTPTransport(verify=self._tls(target), trust_env=False) as transport:
            response = await transport.handle_async_request(request)
            try:
                read = await _read(response, most)
            finally:
                await response.aclose()
        received = {name.lower(): value for name, value in response.headers.items()}
        return Response(response.status_code, received, read)

    def _tls(self, target: NetworkTarget) -> ssl.SSLContext:
        """Return the TLS context.

        For plain HTTP it is empty, because reading the system's certificates takes 50 ms.
        """
        if target.scheme != "https":
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._context is None:
            self._context = httpx2.create_ssl_context(trust_env=False)
        return self._context


def _why(error: BaseException) -> str:
    """Return the reason to show. Only a bad certificate is named: other causes would reveal the network."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "its certificate cannot be trusted"
        cause = cause.__cause__ or cause.__context__
    return "it could not be reached"


async def _read(response: httpx2.Response, most: int) -> bytes:
    """Return the first *most* bytes of the body, not decompressed, so that a small body cannot grow large."""
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
    """Return the addresses of the target. Connect to these only.

    A target that was given as an address was checked when it was read.

    Raises:
        TargetNotAllowed: *admits* refuses one of the addresses.
        HostUnreachable: The name has no address.
    """
    if target.address is not None:
        return [str(target.address)]
    try:
        addresses = [ip_address(text) for text in await resolve(target.host, target.port)]
    except (OSError, UnicodeError) as error:
        raise HostUnreachable("it could not be reached") from error
    except ValueError:  # an address with a zone: on a link of this machine
        raise TargetNotAllowed(PRIVATE) from None
    if not addresses:
        raise HostUnreachable("it could not be reached")
    if not all(admits(address) for address in addresses):
        raise TargetNotAllowed(PRIVATE)
    return [str(address) for address in addresses]
