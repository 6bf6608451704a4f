"""Routes that take only a body are not answered by the framework's handler. Their responses are the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from holdfast.engine.access import Role
from holdfast.server.assembly import table
from holdfast.server.routes import ROUTES
from holdfast.server.routing import ApiRoute, Handler
from tests.server.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio

BODY_ROUTES = {
    route.path: route for route in ROUTES if isinstance(route, ApiRoute) and route._body_handler() is not None
}
GOOD: dict[str, Any] = {"task": "note", "args": {"text": "hello"}}
#: Headers besides the key, and the body.
CALLS: list[tuple[dict[str, str], bytes]] = [
    ({}, json.dumps(GOOD).encode()),
    ({"Idempotency-Key": "one"}, json.dumps(GOOD).encode()),
    ({"Idempotency-Key": '"half'}, json.dumps(GOOD).encode()),
    ({}, b""),
    ({}, b"{"),
    ({}, b'{"task": "note", "task": "note"}'),
    ({}, json.dumps({**GOOD, "state": "complete"}).encode()),
    ({}, json.dumps({**GOOD, "args": {"text": 5}}).encode()),
    ({}, json.dumps({**GOOD, "task": "nothing"}).encode()),
    ({}, b'"' + b"x" * 2_000_000 + b'"'),
    ({"Content-Type": "text/plain"}, b"{}"),
    ({"Content-Encoding": "gzip"}, b"{}"),
    ({"Authorization": "Bearer unknown"}, b"{}"),
    ({"Authorization": ""}, b"{}"),
]


class FrameworkRoute(ApiRoute):
    """A route that the framework's handler answers."""

    def _body_handler(self) -> Handler | None:
        return None


def answered_by_the_framework(route: ApiRoute) -> FrameworkRoute:
    return FrameworkRoute(
        route.path,
        route.endpoint,
        methods=route.methods,
        name=route.name,
        status_code=route.status_code,
        response_model=route.response_model,
        openapi_extra=route.openapi_extra,
    )


async def responses(house: House, path: str) -> list[tuple[int, dict[str, str], set[str], str]]:
    """Return of each call what does not differ from one time to the next."""
    found = []
    async with house.client() as client:
        for more, body in CALLS:
            headers = await house.as_(Role.ADMIN) | {"Content-Type": "application/json"} | more
            response = await client.post(path, content=body, headers=headers)
            content = response.json()
            kept = {
                name: value
                for name, value in response.headers.items()
                if name not in ("content-length", "location")
            }
            found.append((response.status_code, kept, set(content), str(content.get("detail"))))
    return found


@pytest.mark.parametrize("path", [path for path in BODY_ROUTES if not path.endswith("inbound")])
async def test_the_responses_are_those_of_the_framework(path: str) -> None:
    plain, framework = new_house(new_app(), rate="1000/h"), new_house(new_app(), rate="1000/h")
    routes = framework.site.router.routes
    routes[:] = [
        answered_by_the_framework(route) if route is BODY_ROUTES[path] else route
        for route in table(framework.site)
    ]
    found = await responses(plain, path)
    assert found == await responses(framework, path)
    needs_key = {401} if BODY_ROUTES[path].action is not None else set()
    assert {status for status, *_ in found} >= {400, 413, 415, 422} | needs_key


async def test_enqueueing_does_not_use_the_handler_of_the_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(request: Request) -> Response:
        raise AssertionError("the framework's handler was called")

    monkeypatch.setattr(APIRoute, "get_route_handler", lambda route: fail)
    route = BODY_ROUTES[f"{API}/jobs"]
    again = ApiRoute(
        route.path,
        route.endpoint,
        methods=route.methods,
        status_code=201,
        response_model=route.response_model,
        openapi_extra=route.openapi_extra,
    )
    house = new_house()
    house.site.router.routes[:] = [again]
    async with house.client(headers=await house.as_(Role.ADMIN)) as client:
        assert (await client.post(f"{API}/jobs", json=GOOD)).status_code == 201


def test_a_route_with_a_name_in_its_path_is_answered_by_the_framework() -> None:
    assert {f"{API}/jobs", f"{API}/jobs/batch"} <= set(BODY_ROUTES)
    assert not [path for path in BODY_ROUTES if "{" in path]
