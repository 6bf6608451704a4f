"""What every route has in common: it names its one action, and refuses callers that may not do that."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope

from holdfast.app import Holdfast
from holdfast.domain.access import Action
from holdfast.errors import Forbidden, UsageError
from holdfast.server import strict_json
from holdfast.server.access import CALLER, Caller, refuse_key_in_url
from holdfast.server.context import ApiContext
from holdfast.server.idempotency import HEADER, named, once
from holdfast.server.problems import Problem

PREFIX = "/api/v1"
#: Where the route table and the OpenAPI document say what a route does.
ACTION, PROBLEMS = "x-action", "x-problems"
OPEN = "open"

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Answers = Callable[[Scope, Receive], Coroutine[Any, Any, Response]]


def allows(action: Action | None, *problems: int, **options: Any) -> dict[str, Any]:
    """For the decorator of a route: the one *action* that it is (None: open to everybody, which is for health and for
    messages that are signed), and the statuses of problems it may answer beside those that all may."""
    said = OPEN if action is None else action.value
    extra = {ACTION: said, PROBLEMS: list(problems)} | options.pop("openapi_extra", {})
    return {"openapi_extra": extra, **options}


def router(tag: str, prefix: str = PREFIX) -> APIRouter:
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        route_class=ApiRoute,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,  # what clients call it
    )


def context_of(request: Request) -> ApiContext:
    """The door of the API that is asked: routes are made once, for all APIs of this process."""
    found: ApiContext = request.app.state.door
    return found


def app_of(request: Request) -> Holdfast:
    """The app behind the API that is asked."""
    return context_of(request).app


def caller_of(request: Request) -> Caller:
    """Who asks, as the route has found out."""
    found: Caller = request.scope[CALLER]
    return found


class ApiRequest(Request):
    """A request whose JSON is read strictly."""

    async def json(self) -> Any:
        return strict_json.read(await self.body())


def takes_name(route: APIRoute) -> bool:
    """Whether a request for it may carry an Idempotency-Key: it changes something, for a caller who is known."""
    said = (route.openapi_extra or {}).get(ACTION, OPEN)
    return "POST" in (route.methods or ()) and said not in (OPEN, Action.SEE, Action.LOOK)


class ApiRoute(APIRoute):
    """A route with one action. The check is here, so that no handler can forget it."""

    _goes_direct = False

    @property
    def action(self) -> Action | None:
        said = (self.openapi_extra or {}).get(ACTION)
        if said is None:
            raise UsageError(
                f"the route {self.path} does not say what it does; write @router.get(…, **does(Action.…))"
            )
        return None if said == OPEN else Action(said)

    def get_route_handler(self) -> Handler:
        short_way, action = self._short_way(), self.action
        handle = _logged(short_way or super().get_route_handler())
        names = frozenset(field.alias for field in self.dependant.query_params)
        fields = frozenset(
            name
            for field in self.dependant.query_params
            for name in getattr(field.field_info.annotation, "model_fields", ())
        )
        known, takes_body = names | fields, self.body_field is not None
        is_kept, tells_secret = takes_name(self) and action is not Action.ENQUEUE, self._tells_secret

        async def guarded(request: Request) -> Response:
            asked = request if isinstance(request, ApiRequest) else ApiRequest(request.scope, request.receive)
            raw = request.scope["query_string"]
            query = parse_qsl(raw.decode("latin-1"), keep_blank_values=True) if raw else []
            if query:
                refuse_key_in_url(query, known)
            if action is not None:
                await context_of(request).admit(request, action)
            if query:
                _refuse_unknown(query, known)
            if "\x00" in request.scope["path"]:
                raise Problem("NOT_FOUND", "no route has this path; GET /api/v1/openapi.json lists them")
            if takes_body:
                _refuse_other_media(request)
            if not is_kept or HEADER not in request.headers:
                return await handle(asked)
            said = await asked.json() if takes_body and await asked.body() else None
            content = {"path": request.path_params, "body": said}
            name = named(request, caller_of(request), f"POST {self.path_format}", content)
            door = context_of(request)
            return await once(
                await door.store(), name, door.app.new_id(), asked, handle, tells_secret=tells_secret
            )

        self._guarded, self._goes_direct = guarded, short_way is not None
        return guarded

    def directly(self) -> Iterator[tuple[tuple[str, str], Answers]]:
        """Where the framework has nothing to add (it takes a body and makes its own answer, at a path without names): what
        answers by method and path, past the layers and the search for the route, which cost as much as the rest."""
        if not self._goes_direct or self.param_convertors:
            return
        told = {"route": self, "endpoint": self.endpoint}

        async def answer(scope: Scope, receive: Receive) -> Response:
            scope.update(told, path_params={})
            return await self._guarded(ApiRequest(scope, receive))

        for method in self.methods or ():
            yield (method, self.path), answer

    @property
    def _tells_secret(self) -> bool:
        return "secret" in getattr(self.response_model, "model_fields", ())

    def _short_way(self) -> Handler | None:
        """For what takes a body and nothing else, and makes its own answer, as enqueueing does: past the framework's search
        for parameters, which costs as much as all the rest. The same checks, the same errors."""
        needs, field = self.dependant, self.body_field
        others = (
            needs.path_params,
            needs.query_params,
            needs.header_params,
            needs.cookie_params,
            needs.dependencies,
        )
        makes = inspect.signature(self.endpoint, eval_str=True).return_annotation
        if field is None or any(others) or len(needs.body_params) != 1 or makes is not Response:
            return None
        body_name, request_name, endpoint = needs.body_params[0].name, needs.request_param_name, self.endpoint
        required, default = field.field_info.is_required(), field.field_info.default

        async def handle(request: Request) -> Response:
            body = default
            if await request.body():
                body, errors = field.validate(await request.json(), {}, loc=("body",))
                if errors:
                    raise RequestValidationError(errors)
            elif required:
                raise RequestValidationError([{"loc": ("body",), "msg": "Field required", "type": "missing"}])
            given = {body_name: body} | ({request_name: request} if request_name else {})
            answer: Response = await endpoint(**given)
            return answer

        return handle


def _logged(handle: Handler) -> Handler:
    """Put on record who was refused by the rules of a task, as those are who were refused by their role."""

    async def logged(request: Request) -> Response:
        try:
            return await handle(request)
        except Forbidden as error:
            if CALLER in request.scope:
                caller_of(request).log_refusal(str(error))
            raise

    return logged


def _refuse_unknown(query: list[tuple[str, str]], known: frozenset[str]) -> None:
    """A filter that was mistyped must not answer everything."""
    for name, value in query:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise Problem("INVALID", f"no query parameter {name[:60]!r}; there are: {there}")
        if "\x00" in value:
            raise Problem("INVALID", f"{name} holds NUL, which cannot be looked for")


def _refuse_other_media(request: Request) -> None:
    given = request.headers.get("content-type")
    if given is None:
        if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
            return
    elif given.partition(";")[0].strip().lower() == "application/json":
        return
    raise Problem("UNSUPPORTED_MEDIA_TYPE", "send the body as application/json")
