"""The OpenAPI 3.1 document: drawn by FastAPI from routes and shapes, with the problems, keys and headers that all share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from holdfast import __version__
from holdfast.domain.access import Action
from holdfast.server.links import add_links
from holdfast.server.problems import CODES, MEDIA_TYPE
from holdfast.server.routing import ACTION, OPEN, PROBLEMS, takes_name

_ALL = (400, 401, 403, 404, 405, 413, 415, 422, 429, 500, 503)
_OPEN_TOO = (400, 404, 405, 413, 415, 422, 500, 503)
_PROBLEM = "#/components/schemas/Problem"

_KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A name for this request: sent again with it, it is answered again and done once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!#-\\[\\]-~]+$"},
    "example": "8e03978e-40d5-43dd-bc93-6894a57f9324",
}

_INTRODUCTION = """Durable jobs: enqueue calls, see what becomes of them, and steer them.

Keys are sent as `Authorization: Bearer …`. Errors are problem documents (RFC 9457) with a `code` to rely on. Lists come in
pages of at most 500 rows and 4 MB: `next` of one is the `cursor` of the following. Moments are ISO 8601 with a zone, durations are written `30s` or `1h30m`.
A request that changes something may be given an `Idempotency-Key`: sent again within 24 hours it is answered again and done once.
`RateLimit` and `Retry-After` tell how often to call."""


def draw(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The document of *routes*."""
    made = get_openapi(
        title="Holdfast",
        version=__version__,
        openapi_version="3.1.0",
        description=_INTRODUCTION,
        routes=routes,
        separate_input_output_schemas=False,
    )
    named = {route.name for route in routes if isinstance(route, APIRoute) and takes_name(route)}
    return _complete(made, named)


def _complete(made: dict[str, Any], named: set[str]) -> dict[str, Any]:
    """*named*: the operations whose requests may be given a name."""
    parts = made.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = _problem()
    parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for methods in made["paths"].values():
        for operation in methods.values():
            if operation["operationId"] in named:
                operation["parameters"] = [*operation.get("parameters", ()), _KEY_HEADER]
                operation[PROBLEMS] = [*operation.get(PROBLEMS, ()), 409]
            _add_problems(operation)
            add_links(operation)
    return made


def _add_problems(operation: dict[str, Any]) -> None:
    said, more = operation.get(ACTION), operation.pop(PROBLEMS, [])
    is_open = said is None or said == OPEN
    if said is not None and said != OPEN:
        operation["security"] = [{"key": []}]
        operation["x-roles"] = sorted(Action(said).allowed_to)
    answers = operation.setdefault("responses", {})
    answers.pop("422", None)
    for status in sorted({*(_OPEN_TOO if is_open else _ALL), *more}):
        told = [f"`{code}`: {known.title}" for code, known in CODES.items() if known.status == status]
        kept = answers.setdefault(str(status), {"description": "; ".join(told) or "A problem"})
        kept.setdefault("content", {})[MEDIA_TYPE] = {"schema": {"$ref": _PROBLEM}}
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
            "job_id": {"type": "string", "description": "The job that stands in the way."},
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
