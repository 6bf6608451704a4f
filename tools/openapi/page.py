"""Writes the reference page of the HTTP API: a table for each tag, and one of all codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.server.problems import CODES
from tools.openapi.document import Operation, Parameter, Schema, name_of, operations, schemas

#: What all may answer, told once above the tables.
_COMMON = {400, 401, 403, 404, 405, 413, 415, 422, 429, 500, 503}

_HEAD = """# HTTP API

<!-- Made by `python -m tools.openapi`. Change the API, not this page. -->

{introduction}

The document itself is at `GET /api/v1/openapi.json`, and [here](openapi.json) for this version. Clients:
[Python and TypeScript](../how-to/use-the-client.md). Who may do what is decided by the role of a key
([secure the API](../how-to/secure-the-api.md)): `viewer` sees everything and changes nothing, `owner` reaches its own jobs alone,
`operator` steers all jobs, `admin` also makes keys. *Anybody* needs no key.

Beside its own answers every route may answer {common}. In a column *Takes*, what stands in bold must be given.

**Sent again.** Give a request an `Idempotency-Key` (up to 255 printable characters, in quotes or not), and send it again as often as
you like: it is answered as the first time, with `Idempotency-Replayed: true`. A key belongs to one route and one caller (all keys of
an owner are one) and is remembered for 24 hours. With other content it is refused (422 `IDEMPOTENCY_KEY_REUSED`); while the
first one is being carried out, 409 `IDEMPOTENCY_KEY_IN_FLIGHT` with `Retry-After`. What was refused (4xx), or only counted (`dry_run`), has not used up its key. After 5xx
or a lost connection send it again: jobs, moves of jobs, operations, keys, webhooks, their secrets and their messages are not made twice, not even when the
server was killed between the work and the answer (then the key is held for up to a minute); pauses, breakers and the like come to
the same state, and a message of the outbox that was replayed is delivered under the id it has. An answer with a secret is told once: 409 `TOLD_ONCE`, and `made` names what was made, to be rotated or revoked.

**As it was read.** What has an `ETag` may be acted on with `If-Match`: 412 `PRECONDITION_FAILED` when it has changed since. The
version is compared in the transaction of the change, so nobody comes between.

**Not by arguments.** Lists are filtered by task, queue, state, owner, tag, key, error and time, each page in a few hundredths of a
second however many jobs there are. `app.jobs(args=…)` of the Python library is not offered here: it reads through the arguments of up to
4,000 jobs for a page, and 100 of them with a megabyte each took 0.35 s, so any caller that may enqueue could keep the server busy.
Give jobs a `tag` or a `key` for what you will look for.
"""


def page(told: dict[str, Any]) -> str:
    known, every = schemas(told), list(operations(told))
    parts = [_HEAD.format(introduction=told["info"]["description"], common=_statuses(_COMMON))]
    parts += [
        f"## {tag.capitalize()}\n\n{_table([one for one in every if one.tag == tag], known)}"
        for tag in dict.fromkeys(one.tag for one in every)
    ]
    parts.append(
        f"## Codes\n\nA problem is `application/problem+json` (RFC 9457); its `code` is one of these.\n\n{_codes()}"
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
    told = [_named(given) for given in one.parameters if given.place != "path"]
    if one.body:
        required = set(known[one.body].get("required", ()))
        told += [
            f"**`{name}`**" if name in required else f"`{name}`" for name in known[one.body]["properties"]
        ]
    return ", ".join(told)


def _named(given: Parameter) -> str:
    name = f"`{given.name}`" if given.place == "header" else f"`?{given.name}`"
    return f"**{name}**" if given.required else name


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
