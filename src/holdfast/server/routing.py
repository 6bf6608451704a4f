"""The routes of the API. Each names the one action that it is, and refuses callers who may not do that."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.app import Holdfast
from holdfast.engine.access import Action
from holdfast.errors import Forbidden, UsageError
from holdfast.server import strict_json
from holdfast.server.access import CALLER, Caller, refuse_key_in_url
from holdfast.server.context import ApiContext
from holdfast.server.idempotency import HEADER, name_request, run_once
from holdfast.server.problems import Problem

PREFIX = "/api/v1"
#: Where the route table and the OpenAPI document have the action of a route, and the problems it may answer.
ACTION, PROBLEMS = "x-action", "x-problems"
OPEN = "open"

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def allows(action: Action | None, *problems: int, **options: Any) -> dict[str, Any]:
    """Return the options for the decorator of a route: `@routes.get(…, **allows(Action.SEE))`.

    Args:
        action: What the route does. None makes it open to every caller, as health and signed messages are.
        problems: Statuses that it may answer besides those that every route may.
        options: More options for the decorator.
    """
    extra = {ACTION: OPEN if action is None else action.value, PROBLEMS: list(problems)}
    return {"openapi_extra": extra | options.pop("openapi_extra", {}), **options}


def router(tag: str, prefix: str = PREFIX) -> APIRouter:
    """Return a router whose routes are `ApiRoute`s. Clients name their calls after the functions."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        route_class=ApiRoute,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )


def context_of(request: Request) -> ApiContext:
    """Return the context of the API that received *request*. All APIs of a process share the routes."""
    context: ApiContext = request.app.state.context
    return context


def app_of(request: Request) -> Holdfast:
    """Return the app behind the API that received *request*."""
    return context_of(request).app


def caller_of(request: Request) -> Caller:
    """Return the caller that the route has authenticated."""
    caller: Caller = request.scope[CALLER]
    return caller


class ApiRequest(Request):
    """A request whose JSON is read strictly."""

    async def json(self) -> Any:
        return strict_json.read(await self.body())


def takes_idempotency_key(route: APIRoute) -> bool:
    """Return whether a request may carry an Idempotency-Key: the route changes something for a known caller."""
    action = (route.openapi_extra or {}).get(ACTION, OPEN)
    return "POST" in (route.methods or ()) and action not in (OPEN, Action.SEE, Action.LOOK)


class ApiRoute(APIRoute):
    """A route with one action. It checks the caller here, so that no handler can forget to.

    The first line of the handler's docstring is the summary in the document, unless the route has another one.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        summary, _, description = inspect.cleandoc(self.endpoint.__doc__ or "").partition("\n\n")
        if summary and self.summary in (None, summary.removesuffix(".")):
            self.summary, self.description = summary.removesuffix("."), description
        if self._body_handler() is not None:
            self.app = _plain(self.get_route_handler())

    @property
    def action(self) -> Action | None:
        action = (self.openapi_extra or {}).get(ACTION)
        if action is None:
            raise UsageError(f"the route {self.path} has no action; write @routes.get(…, **allows(Action.…))")
        return None if action == OPEN else Action(action)

    def get_route_handler(self) -> Handler:
        action, takes_body = self.action, self.body_field is not None
        handle = _log_refusals(self._body_handler() or super().get_route_handler())
        known = self._query_names()
        # Enqueueing keeps its key itself, in the transaction of the jobs.
        is_named = takes_idempotency_key(self) and action is not Action.ENQUEUE
        has_secret = "secret" in getattr(self.response_model, "model_fields", ())

        async def guarded(received: Request) -> Response:
            request = (
                received if isinstance(received, ApiRequest) else ApiRequest(received.scope, received.receive)
            )
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
            if not is_named or HEADER not in request.headers:
                return await handle(request)
            body = await request.json() if takes_body and await request.body() else None
            content = {"path": request.path_params, "body": body}
            name = name_request(request, caller_of(request), f"POST {self.path_format}", content)
            context = context_of(request)
            holder = context.app.runtime.new_id()
            return await run_once(context.requests, name, holder, request, handle, has_secret=has_secret)

        return guarded

    def _query_names(self) -> frozenset[str]:
        names = {field.alias for field in self.dependant.query_params}
        for field in self.dependant.query_params:
            names.update(getattr(field.field_info.annotation, "model_fields", ()))
        return frozenset(names)

    def _body_handler(self) -> Handler | None:
        """Return a handler for a route that takes a body and nothing else and makes its own response, or None.

        It checks the body with the framework's field, and spares the search for other parameters (ADR 29).
        """
        needs, field = self.dependant, self.body_field
        others = (
            needs.path_params,
            needs.query_params,
            needs.header_params,
            needs.cookie_params,
            needs.dependencies,
        )
        returns = inspect.signature(self.endpoint, eval_str=True).return_annotation
        if field is None or any(others) or len(needs.body_params) != 1 or returns is not Response:
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
            arguments = {body_name: body} | ({request_name: request} if request_name else {})
            response: Response = await endpoint(**arguments)
            return response

        return handle


def _plain(handle: Handler) -> ASGIApp:
    """Return an ASGI application around *handle*, without the exit stacks that the framework opens for dependencies."""

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        response = await handle(ApiRequest(scope, receive))
        await response(scope, receive, send)

    return respond


def _log_refusals(handle: Handler) -> Handler:
    """Log callers whom the rules of a task refuse, as those are logged whom their role refuses."""

    async def logged(request: Request) -> Response:
        try:
            return await handle(request)
        except Forbidden as error:
            if CALLER in request.scope:
                caller_of(request).log_refusal(str(error))
            raise

    return logged


def _refuse_unknown(query: list[tuple[str, str]], known: frozenset[str]) -> None:
    """Refuse a filter with a typing error, which would otherwise match everything."""
    for name, value in query:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise Problem("INVALID", f"no query parameter {name[:60]!r}; there are: {names}")
        if "\x00" in value:
            raise Problem("INVALID", f"{name} contains NUL, which no stored text contains; leave it out")


def _refuse_other_media(request: Request) -> None:
    media = request.headers.get("content-type")
    if media is None:
        if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
            return
    elif media.partition(";")[0].strip().lower() == "application/json":
        return
    raise Problem("UNSUPPORTED_MEDIA_TYPE", "send the body as application/json")
