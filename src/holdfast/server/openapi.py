"""The OpenAPI 3.1 document: made by FastAPI from routes and models, with the problems, keys and headers that all share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from holdfast import __version__
from holdfast.engine.access import Action
from holdfast.server.links import add_links
from holdfast.server.problems import CODES, MEDIA_TYPE
from holdfast.server.routing import ACTION, OPEN, PROBLEMS, takes_idempotency_key

_ALL = (400, 401, 403, 404, 405, 413, 415, 422, 429, 500, 503)
_OPEN_TOO = (400, 404, 405, 413, 415, 422, 500, 503)
_PROBLEM = "#/components/schemas/Problem"

_KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A name for this request. If the request is sent again with it, it is carried out once and gets the same response.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!#-\\[\\]-~]+$"},
    "example": "8e03978e-40d5-43dd-bc93-6894a57f9324",
}

_INTRODUCTION = """Durable jobs: enqueue calls, follow them, and control them.

Send a key as `Authorization: Bearer …`. Errors are problem documents (RFC 9457) with a stable `code`. Lists are paged, with at most 500
rows and 4 MB a page: pass the `next` of a page as `cursor` to get the following one. Times are ISO 8601 with a time zone. Durations are
written `30s` or `1h30m`. A request that changes something may have an `Idempotency-Key`: if it is sent again within 24 hours, it is
carried out once and gets the same answer. `RateLimit` and `Retry-After` say how often you may call."""


def make_document(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Return the document of *routes*."""
    document = get_openapi(
        title="Holdfast",
        version=__version__,
        openapi_version="3.1.0",
        description=_INTRODUCTION,
        routes=routes,
        separate_input_output_schemas=False,
    )
    named = {route.name for route in routes if isinstance(route, APIRoute) and takes_idempotency_key(route)}
    return _complete(document, named)


def _complete(document: dict[str, Any], named: set[str]) -> dict[str, Any]:
    """Add what all operations share. Requests of the operations in *named* may have an Idempotency-Key."""
    parts = document.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = _problem()
    parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for methods in document["paths"].values():
        for operation in methods.values():
            if operation["operationId"] in named:
                operation["parameters"] = [*operation.get("parameters", ()), _KEY_HEADER]
                operation[PROBLEMS] = [*operation.get(PROBLEMS, ()), 409]
            _add_problems(operation)
            add_links(operation)
    return document


def _add_problems(operation: dict[str, Any]) -> None:
    action, more = operation.get(ACTION), operation.pop(PROBLEMS, [])
    is_open = action is None or action == OPEN
    if action is not None and action != OPEN:
        operation["security"] = [{"key": []}]
        operation["x-roles"] = sorted(Action(action).allowed_to)
    answers = operation.setdefault("responses", {})
    answers.pop("422", None)
    for status in sorted({*(_OPEN_TOO if is_open else _ALL), *more}):
        titles = [f"`{code}`: {known.title}" for code, known in CODES.items() if known.status == status]
        response = answers.setdefault(str(status), {"description": "; ".join(titles) or "A problem"})
        response.setdefault("content", {})[MEDIA_TYPE] = {"schema": {"$ref": _PROBLEM}}
        if status in (429, 503):
            answers[str(status)]["headers"] = {
                "Retry-After": {"description": "Seconds to wait, or a date.", "schema": {"type": "string"}}
            }


def _problem() -> dict[str, Any]:
    return {
        "type": "object",
        "title": "Problem",
        "description": "What went wrong (RFC 9457). `code` is stable; `detail` is for people.",
        "required": ["type", "title", "status", "detail", "code", "instance"],
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "code": {"type": "string", "enum": sorted(CODES)},
            "instance": {"type": "string", "format": "uri"},
            "retry_after": {"type": "integer", "description": "Seconds to wait."},
            "job_id": {"type": "string", "description": "The job that prevents it."},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["pointer", "detail"],
                    "properties": {"pointer": {"type": "string"}, "detail": {"type": "string"}},
                },
            },
        },
        "additionalProperties": True,
        "example": {
            "type": "urn:holdfast:problem:not-found",
            "title": CODES["NOT_FOUND"].title,
            "status": 404,
            "detail": "no job has this id",
            "code": "NOT_FOUND",
            "instance": "urn:uuid:019a8f6e-2a53-7cc1-9d0e-5f1c7a0b3d42",
        },
    }
