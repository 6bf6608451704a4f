"""`Idempotency-Key`: a request that its sender has named may be sent again, and is carried out once (draft-ietf-httpapi-07).

Enqueueing stores the name in the transaction of its jobs (`Requests.enqueue`). `run_once` carries out every other request that
changes something, in three steps:

    begun ──► answered    it was done: a repeat gets the same response, for `KEPT_FOR`
      ├─────► dropped     it was refused (4xx) or read only (`dry_run`): nothing was done, and the name is free
      └─────► left        the result is unknown (5xx, or the process was killed): the next request carries it out
                          under the same token, by which stores and verbs recognize what was done already
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from hashlib import blake2b
from typing import Any

import msgspec
from fastapi import HTTPException, Response
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError

from holdfast.engine.named_request import EarlierRequest, NamedRequest
from holdfast.engine.requests import Requests
from holdfast.errors import HoldfastError, StoreError
from holdfast.logging import Log
from holdfast.server.access import Caller
from holdfast.server.problems import Problem, problem_of
from holdfast.server.responses import READ_ONLY, TOKEN

log = Log("holdfast.server")

HEADER = "idempotency-key"
#: How long a response is kept.
KEPT_FOR = timedelta(hours=24)
#: How long a request may take. After it the process that runs it counts as lost, and another may run it.
TAKES_AT_MOST = timedelta(seconds=60)
#: The headers of a response that are kept with its body.
HEADERS_KEPT = ("location", "etag")
#: Marks a response that was sent before.
REPLAYED = {"Idempotency-Replayed": "true"}

_LONGEST = 255
_PLAIN = r"[\x20-\x21\x23-\x5b\x5d-\x7e]*"
_QUOTED = re.compile(rf'"({_PLAIN}(?:\\["\\]{_PLAIN})*)"')
_BARE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


def name_request(request: HttpRequest, caller: Caller, route: str, content: Any) -> NamedRequest:
    """Return the name that its sender gave a request, in the scope of the route and the caller.

    *content* are the values of the request, by which a repeat is recognized.

    Raises `Problem` when the header is malformed.
    """
    values = request.headers.getlist(HEADER)
    name = _read(values[0]) if len(values) == 1 else None
    if name is None:
        raise Problem(
            "BAD_REQUEST",
            f'Idempotency-Key is one text of 1 to {_LONGEST} printable ASCII characters, e.g. "8e03978e"',
        )
    digest = blake2b(msgspec.json.encode(content, order="deterministic"), digest_size=16).digest()
    return NamedRequest(f"{route} {caller.scope}", name, digest)


def _read(value: str) -> str | None:
    """Read a structured-field string in quotes, or the bare text that many clients send."""
    value = value.strip()
    if found := _QUOTED.fullmatch(value):
        name = re.sub(r'\\(["\\])', r"\1", found[1])
    elif _BARE.fullmatch(value):
        name = value
    else:
        return None
    return name if 1 <= len(name) <= _LONGEST else None


def key_reused() -> Problem:
    return Problem(
        "IDEMPOTENCY_KEY_REUSED",
        "this Idempotency-Key was sent before with other content; use a new key for a new request",
    )


async def run_once(
    requests: Requests,
    name: NamedRequest,
    holder: str,
    request: HttpRequest,
    handle: Callable[[HttpRequest], Awaitable[Response]],
    *,
    has_secret: bool,
) -> Response:
    """Return the response of *handle*, or, if a request of this *name* was answered before, the same response again.

    With *has_secret* the response contains a secret; then only the id of what was made is kept.
    """
    begun = await requests.begin(name, holder, span=TAKES_AT_MOST, keep=KEPT_FOR)
    if isinstance(begun, EarlierRequest):
        return _replay(name, begun)
    request.scope[TOKEN] = begun.token
    try:
        response = await handle(request)
    except Exception as error:
        end = requests.drop if _is_refusal(error) else requests.leave
        await _record(end(name, begun.ticket))
        raise
    if READ_ONLY in request.scope:
        await _record(requests.drop(name, begun.ticket))
        return response
    answer = _encode_without_secret(response) if has_secret else _encode(response)
    await _record(requests.answer(name, begun.ticket, answer, keep=KEPT_FOR))
    return response


def _replay(name: NamedRequest, earlier: EarlierRequest) -> Response:
    if earlier.fingerprint != name.fingerprint:
        raise key_reused()
    if earlier.answer is None:
        raise Problem(
            "IDEMPOTENCY_KEY_IN_FLIGHT",
            "a request with this Idempotency-Key is being carried out; send the same again in a moment",
            headers={"Retry-After": "1"},
        )
    answer = msgspec.json.decode(earlier.answer)
    if "made" in answer:
        raise Problem(
            "SECRET_SHOWN_ONCE",
            "this was done before, and its response had a secret, which is not stored; make a new one",
            made=answer["made"],
        )
    headers = answer["headers"] | REPLAYED
    return Response(answer["body"], answer["status"], headers=headers, media_type="application/json")


def _encode(response: Response) -> str:
    headers = {header: response.headers[header] for header in HEADERS_KEPT if header in response.headers}
    answer = {"status": response.status_code, "headers": headers, "body": bytes(response.body).decode()}
    return msgspec.json.encode(answer).decode()


def _encode_without_secret(response: Response) -> str:
    return msgspec.json.encode({"made": msgspec.json.decode(response.body)["id"]}).decode()


def _is_refusal(error: Exception) -> bool:
    """Return whether *error* means that nothing was done."""
    if isinstance(error, HoldfastError):
        error = problem_of(error)
    return isinstance(error, RequestValidationError) or (
        isinstance(error, HTTPException) and error.status_code < 500
    )


async def _record(ending: Awaitable[bool]) -> None:
    """Record how a request ended. If that fails, the request is answered all the same, because what was done stays done."""
    try:
        await ending
    except StoreError as error:
        log.warning("idempotency_key.not_recorded", reason=type(error).__name__)
