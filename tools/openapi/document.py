"""The OpenAPI document, and the operations it tells of, as the writers of this folder need them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.server.routes import document

Schema = dict[str, Any]

#: Not for clients with a key, and why.
NOT_FOR_CLIENTS = {"receive_webhook": "its sender signs it, and no key opens it"}
KEY_HEADER = "Idempotency-Key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    name: str
    place: str  # path, query or header
    schema: Schema
    required: bool
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    name: str
    method: str
    path: str
    tag: str
    summary: str
    roles: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    body: str | None  # the name of its schema
    is_stream: bool
    answers: dict[int, Schema | None]  # None: nothing, {"type": "string"} with text: plain text
    texts: frozenset[int]  # the statuses that are answered in plain text
    responses: dict[int, str]

    def of(self, place: str) -> list[Parameter]:
        return [one for one in self.parameters if one.place == place]

    @property
    def takes_key(self) -> bool:
        return any(one.name == KEY_HEADER for one in self.of("header"))

    @property
    def headers(self) -> list[Parameter]:
        """Those that a caller may give; a stream's place is told by the client itself."""
        return [one for one in self.of("header") if one.name != "Last-Event-ID"]


def made() -> dict[str, Any]:
    """The document of any app: its tasks are no part of it."""
    told: dict[str, Any] = json.loads(json.dumps(document()))
    return told


def operations(told: dict[str, Any]) -> Iterator[Operation]:
    for path, methods in told["paths"].items():
        for method, one in methods.items():
            yield _operation(path, method, one)


def schemas(told: dict[str, Any]) -> dict[str, Schema]:
    found: dict[str, Schema] = told["components"]["schemas"]
    return found


def name_of(schema: Schema) -> str | None:
    """The schema that is referred to, also where null is allowed beside it."""
    for one in (schema, *schema.get("anyOf", ())):
        if "$ref" in one:
            return str(one["$ref"]).rpartition("/")[2]
    return None


def reached(told: dict[str, Any], names: set[str]) -> set[str]:
    """*names*, and every schema that they are made of."""
    found, left = set(), list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _refs(schemas(told)[name])
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
            name=given["name"],
            place=given["in"],
            schema=given["schema"],
            required=given.get("required", False),
            description=given.get("description", ""),
        )
        for given in one.get("parameters", ())
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
