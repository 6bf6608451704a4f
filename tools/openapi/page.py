"""Generates the reference page of the HTTP API: a table for each tag, and one of all codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.server.problems import CODES
from tools.openapi.document import Operation, Parameter, Schema, name_of, operations, schemas

#: The statuses that every operation may answer, listed once above the tables.
_COMMON = {400, 401, 403, 404, 405, 413, 415, 422, 429, 500, 503}

_HEAD = """# HTTP API

<!-- Made by `python -m tools.openapi`. Change the API, not this page. -->

{introduction}

The OpenAPI document is at `GET /api/v1/openapi.json`, and [here](openapi.json) for this version. There are clients for
[Python and TypeScript](../how-to/use-the-client.md). The role of a key decides what a caller may do
([secure the API](../how-to/secure-the-api.md)). A `viewer` sees everything and changes nothing. An `owner` reaches only its own jobs.
An `operator` controls all jobs. An `admin` also creates keys. A route for *anybody* needs no key.

Besides the answers in the tables, every route may answer {common}. In the column *Takes*, required fields are bold.

**Idempotent requests.** Give a request an `Idempotency-Key` (up to 255 printable characters, with or without quotes), and send it
again as often as you like. Each repeat gets the first answer, with `Idempotency-Replayed: true`.

- A key belongs to one route and one caller and is remembered for 24 hours. All keys of an owner count as one caller.
- The same key with other content is refused (422 `IDEMPOTENCY_KEY_REUSED`). While the first request is still running, the answer
  is 409 `IDEMPOTENCY_KEY_IN_FLIGHT` with `Retry-After`.
- A request that was refused (4xx), or that only counted (`dry_run`), does not use up its key.
- After a 5xx or a lost connection, send the request again. Jobs, moves of jobs, operations, keys, webhooks, their secrets and
  their messages are not created twice, even when the server was killed between the work and the answer. In that case the key is
  held for up to a minute.
- Repeated pauses, breaker changes and the like lead to the same state. A replayed message of the outbox is delivered with the id
  it already has.
- An answer with a secret is sent only once. A repeat gets 409 `SECRET_SHOWN_ONCE`, and `made` names the object that was created, so that
  you can rotate or revoke it.

**Conditional requests.** You can change an object that has an `ETag` with `If-Match`. If the object has changed since you read it,
the answer is 412 `PRECONDITION_FAILED`. The version is compared in the transaction of the change, so no other change comes between.

**No filter by arguments.** Lists are filtered by task, queue, state, owner, tag, key, error and time. Each page takes a few
hundredths of a second, however many jobs there are. `app.jobs.list(args=…)` of the Python library is not available here. It reads through
the arguments of up to 4,000 jobs for a page, and 100 jobs with a megabyte each took 0.35 s, so any caller that may enqueue could keep
the server busy. Give jobs a `tag` or a `key` to search by.
"""


def page(api: dict[str, Any]) -> str:
    """Return the page."""
    known, every = schemas(api), list(operations(api))
    parts = [_HEAD.format(introduction=api["info"]["description"], common=_statuses(_COMMON))]
    parts += [
        f"## {tag.capitalize()}\n\n{_table([one for one in every if one.tag == tag], known)}"
        for tag in dict.fromkeys(one.tag for one in every)
    ]
    parts.append(
        f"## Codes\n\nA problem is `application/problem+json` (RFC 9457). Its `code` is one of these:\n\n{_codes()}"
    )
    return "\n".join(parts)


def _table(of: Iterable[Operation], known: dict[str, Schema]) -> str:
    rows = ["| Method and path | What | Who | Takes | Answers |", "|---|---|---|---|---|"]
    rows += [
        f"| `{one.method} {one.path}`<br>`{one.name}` | {_cell(one.summary)} | {_roles(one)} | {_takes(one, known)} | {_answers(one)} |"
        for one in of
    ]
    return "\n".join(rows) + "\n"


def _roles(one: Operation) -> str:
    return ", ".join(one.roles) if one.roles else "*anybody*"


def _takes(one: Operation, known: dict[str, Schema]) -> str:
    names = [_name(parameter) for parameter in one.parameters if parameter.location != "path"]
    if one.body:
        required = set(known[one.body].get("required", ()))
        names += [
            f"**`{name}`**" if name in required else f"`{name}`" for name in known[one.body]["properties"]
        ]
    return ", ".join(names)


def _name(parameter: Parameter) -> str:
    name = f"`{parameter.name}`" if parameter.location == "header" else f"`?{parameter.name}`"
    return f"**{name}**" if parameter.required else name


def _answers(one: Operation) -> str:
    own = {status for status in one.responses if status not in _COMMON or status in one.answers}
    return "<br>".join(_answer(one, status) for status in sorted(own))


def _answer(one: Operation, status: int) -> str:
    schema = one.answers.get(status)
    if one.is_stream and status == 200:
        return "200 a stream of events"
    if schema is None:
        return f"{status} problem" if status >= 400 else str(status)
    if status in one.texts:
        return f"{status} text"
    return f"{status} `{name_of(schema) or 'object'}`"


def _statuses(of: set[int]) -> str:
    return ", ".join(map(str, sorted(of)))


def _codes() -> str:
    rows = ["| Code | Status | Meaning |", "|---|---|---|"]
    rows += [f"| `{code}` | {known.status} | {_cell(known.title)} |" for code, known in CODES.items()]
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
