"""`Idempotency-Key`: a request that its sender has named may be sent again, and is done once (draft-ietf-httpapi-07).

Enqueueing keeps the name in the transaction of its jobs (`Store.enqueue_once`). Whatever else changes something is begun, done
and answered in three steps, by `once`:

    begun ──► answered    it was done: the same answer again, for `KEPT_FOR`
      ├─────► forgotten   it was refused (4xx) or only looked (`dry_run`): nothing was done, its name is free
      └─────► left        what became of it is not known (5xx, killed): the next one does it under the same token,
                          by which stores and verbs know what was done already
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

from holdfast.engine.api_store import EarlierRequest, NamedRequest
from holdfast.engine.ports import Store
from holdfast.errors import HoldfastError, StoreError
from holdfast.logs import Log
from holdfast.server.access import Caller
from holdfast.server.problems import Problem, problem_of
from holdfast.server.responses import ONLY_LOOKED, TOKEN

log = Log("holdfast.server")

HEADER = "idempotency-key"
#: So long an answer is kept.
KEPT_FOR = timedelta(hours=24)
#: How long a request may take; then the process that runs it counts as lost, and another may run it.
TAKES_AT_MOST = timedelta(seconds=60)
#: Of an answer, what is kept beside its body.
HEADERS_KEPT = ("location", "etag")
#: Tells that the answer is the first one's.
REPLAYED = {"Idempotency-Replayed": "true"}

_LONGEST = 255
_PLAIN = r"[\x20-\x21\x23-\x5b\x5d-\x7e]*"
_QUOTED = re.compile(rf'"({_PLAIN}(?:\\["\\]{_PLAIN})*)"')
_BARE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


def named(request: HttpRequest, caller: Caller, route: str, content: Any) -> NamedRequest:
    """The name its sender gave a request, in the scope of route and sender. *content*: plain values."""
    given = request.headers.getlist(HEADER)
    name = _read(given[0]) if len(given) == 1 else None
    if name is None:
        raise Problem(
            "BAD_REQUEST",
            f'Idempotency-Key is one text of 1 to {_LONGEST} printable ASCII characters, e.g. "8e03978e"',
        )
    digest = blake2b(msgspec.json.encode(content, order="deterministic"), digest_size=16).digest()
    return NamedRequest(f"{route} {caller.scope}", name, digest)


def _read(value: str) -> str | None:
    """A structured-field string in quotes, or the bare text that many send."""
    value = value.strip()
    if found := _QUOTED.fullmatch(value):
        name = re.sub(r'\\(["\\])', r"\1", found[1])
    elif _BARE.fullmatch(value):
        name = value
    else:
        return None
    return name if 1 <= len(name) <= _LONGEST else None


def reused() -> Problem:
    return Problem(
        "IDEMPOTENCY_KEY_REUSED",
        "this Idempotency-Key was sent before with other content; use a new key for a new request",
    )


async def once(
    store: Store,
    name: NamedRequest,
    holder: str,
    request: HttpRequest,
    handle: Callable[[HttpRequest], Awaitable[Response]],
    *,
    tells_secret: bool,
) -> Response:
    """What *handle* answers; or, where a request of this *name* was answered before, the same again."""
    found = await store.begin_request(name, holder, span=TAKES_AT_MOST, keep=KEPT_FOR)
    if isinstance(found, EarlierRequest):
        return _again(name, found)
    request.scope[TOKEN] = found.token
    try:
        made = await handle(request)
    except Exception as error:
        end = store.drop_request if _is_refused(error) else store.leave_request
        await _quietly(end(name, found.ticket))
        raise
    if ONLY_LOOKED in request.scope:
        await _quietly(store.drop_request(name, found.ticket))
        return made
    answer = _told_once(made) if tells_secret else _answer(made)
    await _quietly(store.answer_request(name, found.ticket, answer, keep=KEPT_FOR))
    return made


def _again(name: NamedRequest, kept: EarlierRequest) -> Response:
    if kept.fingerprint != name.fingerprint:
        raise reused()
    if kept.answer is None:
        raise Problem(
            "IDEMPOTENCY_KEY_IN_FLIGHT",
            "a request with this Idempotency-Key is being carried out; send the same again in a moment",
            headers={"Retry-After": "1"},
        )
    answer = msgspec.json.decode(kept.answer)
    if "told" in answer:
        raise Problem(
            "TOLD_ONCE",
            "this was done before, and its answer held a secret, which is kept nowhere; make a new one",
            made=answer["told"],
        )
    headers = answer["headers"] | REPLAYED
    return Response(answer["body"], answer["status"], headers=headers, media_type="application/json")


def _answer(made: Response) -> str:
    headers = {header: made.headers[header] for header in HEADERS_KEPT if header in made.headers}
    told = {"status": made.status_code, "headers": headers, "body": bytes(made.body).decode()}
    return msgspec.json.encode(told).decode()


def _told_once(made: Response) -> str:
    """Only which thing it was: no secret is kept for the sake of being told twice."""
    return msgspec.json.encode({"told": msgspec.json.decode(made.body)["id"]}).decode()


def _is_refused(error: Exception) -> bool:
    """Whether nothing was done."""
    if isinstance(error, HoldfastError):
        error = problem_of(error)
    return isinstance(error, RequestValidationError) or (
        isinstance(error, HTTPException) and error.status_code < 500
    )


async def _quietly(ending: Awaitable[bool]) -> None:
    """What was done stays done and is answered, whether or not that could be written down."""
    try:
        await ending
    except StoreError as error:
        log.warning("idempotency_key.not_recorded", reason=type(error).__name__)
