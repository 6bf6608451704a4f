"""The fault switch of the stand-in: makes calls fail in the ways that providers do.

The option `--faults` enables it.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from systems.common import fault_switch
from systems.common.connections import cut
from systems.common.fault_switch import answer, drain

__all__ = ["Fault", "Faults", "Switch", "cut", "fault_of"]

_HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault: what goes wrong, for which share of the calls, and for how long.

    *latency_ms* combines with any other. Of the others, the first that is set counts. Those above the line
    make the call fail. Those below it change the content of the response.
    """

    latency_ms: Annotated[float, msgspec.Meta(ge=0, le=600_000)] = 0
    reset: bool = False  #: the connection is cut
    hang: bool = False  #: no response until the fault is switched off or replaced
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] | None = None
    retry_after: Annotated[int, msgspec.Meta(ge=0, le=86_400)] | None = None  #: with *status*, in seconds
    reset_requests: Annotated[str, msgspec.Meta(max_length=20)] | None = None  #: with *status*: "6m0s"
    html: bool = False  #: 200, with an HTML page instead of JSON
    error_body: Annotated[str, msgspec.Meta(max_length=60)] | None = None  #: 200, with an error of this code
    broken_stream: bool = False  #: half of the response, then the connection is cut
    # ------------------------------------------------------------------------------------------------------------------
    length_cut: bool = False
    refusal: bool = False
    content_filter: bool = False
    bad_json: bool = False
    fenced: bool = False  #: the JSON is in a code fence, with prose around it
    huge_bytes: Annotated[int, msgspec.Meta(ge=0, le=50_000_000)] = 0
    endless: bool = False  #: a stream that never ends
    content: Annotated[str, msgspec.Meta(max_length=1_000_000)] | None = None  #: the text of the response
    percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 100
    times: Annotated[int, msgspec.Meta(ge=1)] | None = None  #: calls it breaks before it switches itself off
    seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] | None = None


class Switch(fault_switch.Switch[Fault]):
    """The fault switch of the provider."""


class Faults:
    """ASGI middleware that makes calls to the API fail as the switch says."""

    def __init__(self, app: ASGIApp, switch: Switch) -> None:
        self._app, self._switch = app, switch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self._switch.take() if scope["type"] == "http" and scope["path"].startswith("/v1/") else None
        if fault is None:
            await self._app(scope, receive, send)
            return
        scope["provider.fault"] = fault
        if fault.latency_ms:
            await asyncio.sleep(fault.latency_ms / 1000)
        if fault.reset or fault.hang:
            if fault.hang:
                await self._switch.wait_until_off()
            cut(scope)
        elif fault.status is not None:
            await drain(receive)
            await answer(send, fault.status, _error(fault.status), b"application/json", _retry_headers(fault))
        elif fault.html:
            await drain(receive)
            await answer(send, 200, _HTML, b"text/html", [])
        elif fault.error_body is not None:
            await drain(receive)
            await answer(send, 200, _error(500, fault.error_body), b"application/json", [])
        else:
            await self._app(scope, receive, send)


def fault_of(request: Request) -> Fault | None:
    """Return the fault that the content of the response to *request* is to show, if any."""
    fault: Fault | None = request.scope.get("provider.fault")
    return fault


def _retry_headers(fault: Fault) -> list[tuple[bytes, bytes]]:
    headers = [] if fault.retry_after is None else [(b"retry-after", b"%d" % fault.retry_after)]
    if fault.reset_requests is not None:
        headers.append((b"x-ratelimit-reset-requests", fault.reset_requests.encode()))
    return headers


def _error(status: int, code: str | None = None) -> bytes:
    kind = (
        "server_error" if status >= 500 else "rate_limit_error" if status == 429 else "invalid_request_error"
    )
    # Some providers repeat the key in an error. This one does too, so that tests can see that it is not
    # passed on.
    text = "A fault is switched on. Incorrect API key provided: sk-canary-0123456789."
    return json.dumps({"error": {"message": text, "type": kind, "param": None, "code": code}}).encode()
