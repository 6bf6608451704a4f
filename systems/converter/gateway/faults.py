"""The fault switch: makes the gateway fail on purpose, for tests and the tour.

The option `--faults` enables it.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from systems.common import fault_switch
from systems.common.connections import close, cut
from systems.common.fault_switch import answer, drain


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault: what goes wrong, for which share of the requests, and for how long.

    *latency_ms* combines with any other. Of the others, the first that is set counts: *reset* cuts the
    connection, *hang* never answers, *status* answers with that status, *garbage* with something that is not
    XML, and *truncate* with half of the real response.
    """

    status: Annotated[int, msgspec.Meta(ge=400, le=599)] | None = None
    latency_ms: Annotated[float, msgspec.Meta(ge=0, le=600_000)] = 0
    hang: bool = False
    reset: bool = False
    garbage: bool = False
    truncate: bool = False
    retry_after: Annotated[int, msgspec.Meta(ge=0, le=86_400)] | None = None  #: with *status*, in seconds
    percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 100
    seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] | None = None


class Switch(fault_switch.Switch[Fault]):
    """The fault switch of the gateway."""


class Faults:
    """ASGI middleware that makes requests to the service fail as the switch says."""

    def __init__(self, app: ASGIApp, switch: Switch) -> None:
        self._app, self._switch = app, switch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == "/faults":
            return await self._app(scope, receive, send)
        fault = self._switch.take(scope["path"])
        if fault is None:
            return await self._app(scope, receive, send)
        await self._fail(fault, scope, receive, send)
        return None

    async def _fail(self, fault: Fault, scope: Scope, receive: Receive, send: Send) -> None:
        if fault.latency_ms:
            await asyncio.sleep(fault.latency_ms / 1000)
        if fault.reset:
            cut(scope)
        elif fault.hang:
            await self._switch.wait_until_off()
            cut(scope)
        elif fault.status is not None:
            await drain(receive)
            headers = [] if fault.retry_after is None else [(b"retry-after", b"%d" % fault.retry_after)]
            body = b'{"type":"about:blank","status":%d,"code":"FAULT","detail":"A fault is switched on."}'
            await answer(send, fault.status, body % fault.status, b"application/problem+json", headers)
        elif fault.garbage:
            await drain(receive)
            await answer(send, 200, b"\x00\xff<html><p>not what you asked for", b"application/xml", [])
        elif fault.truncate:
            await self._app(scope, receive, _send_half(send, scope))
        else:
            await self._app(scope, receive, send)


def _send_half(send: Send, scope: Scope) -> Send:
    """Return a `send` that passes on the headers and half of the body, then closes the connection."""

    async def halve(message: Message) -> None:
        if message["type"] == "http.response.body":
            body = message.get("body", b"")
            await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
            close(
                scope
            )  # no reset, so that the half arrives; the client sees that it is shorter than its length
            return
        await send(message)

    return halve
