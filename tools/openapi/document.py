"""The OpenAPI document and its operations, in the form that the generators of this folder need."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.server.routes import document

Schema = dict[str, Any]

#: Operations that are left out of the clients, and why.
NOT_FOR_CLIENTS = {"receive_webhook": "its sender signs it, and no key opens it"}
KEY_HEADER = "Idempotency-Key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of an operation."""

    name: str
    location: str  # path, query or header
    schema: Schema
    required: bool
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of the API."""

    name: str
    method: str
    path: str
    tag: str
    summary: str
    roles: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    body: str | None  # the name of its schema
    is_stream: bool
    answers: dict[int, Schema | None]  # None: no body; {"type": "string"} for a status in texts: plain text
    texts: frozenset[int]  # the statuses with a plain text body
    responses: dict[int, str]

    def of(self, location: str) -> list[Parameter]:
        """Return the parameters in the path, the query or the headers."""
        return [one for one in self.parameters if one.location == location]

    @property
    def takes_key(self) -> bool:
        return any(one.name == KEY_HEADER for one in self.of("header"))

    @property
    def headers(self) -> list[Parameter]:
        """The header parameters that a caller may set. The client sets a stream's position itself."""
        return [one for one in self.of("header") if one.name != "Last-Event-ID"]


def make_document() -> dict[str, Any]:
    """Return the OpenAPI document. It is the same for each app, because it does not include tasks."""
    api: dict[str, Any] = json.loads(json.dumps(document()))
    return api


def operations(api: dict[str, Any]) -> Iterator[Operation]:
    """Yield all operations."""
    for path, methods in api["paths"].items():
        for method, one in methods.items():
            yield _operation(path, method, one)


def schemas(api: dict[str, Any]) -> dict[str, Schema]:
    """Return the named schemas."""
    found: dict[str, Schema] = api["components"]["schemas"]
    return found


def name_of(schema: Schema) -> str | None:
    """Return the name of the schema that *schema* refers to, or None.

    A reference that also allows null counts.
    """
    for one in (schema, *schema.get("anyOf", ())):
        if "$ref" in one:
            return str(one["$ref"]).rpartition("/")[2]
    return None


def reached(api: dict[str, Any], names: set[str]) -> set[str]:
    """Return *names* and the names of all schemas that they refer to."""
    found, pending = set(), list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += _refs(schemas(api)[name])
    return found


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].rpartition("/")[2]
        for one in value.values():
            yield from _refs(one)
    elif isinstance(value, list):
        for one in value:
            yield from _refs(one)


def _operation(path: str, method: str, one: dict[str, Any]) -> Operation:
    parameters = tuple(
        Parameter(
            name=parameter["name"],
            location=parameter["in"],
            schema=parameter["schema"],
            required=parameter.get("required", False),
            description=parameter.get("description", ""),
        )
        for parameter in one.get("parameters", ())
    )
    body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    answers: dict[int, Schema | None] = {}
    texts, is_stream = set(), False
    for status, response in one["responses"].items():
        content = response.get("content", {})
        is_stream |= "text/event-stream" in content
        if "application/json" in content:
            answers[int(status)] = content["application/json"]["schema"]
        elif any(media.startswith("text/plain") for media in content):
            answers[int(status)] = {"type": "string"}
            texts.add(int(status))
        elif status == "204":
            answers[204] = None
    return Operation(
        name=one["operationId"],
        method=method.upper(),
        path=path,
        tag=one["tags"][0],
        summary=one.get("description") or one.get("summary") or "",
        roles=tuple(one.get("x-roles", ())),
        parameters=parameters,
        body=name_of(body),
        is_stream=is_stream,
        answers=dict(sorted(answers.items())),
        texts=frozenset(texts),
        responses={int(status): response["description"] for status, response in one["responses"].items()},
    )
