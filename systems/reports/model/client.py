"""One call of the model: bounded in time and size, with a client request id and a count of its tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict

import anyio
import httpx2
import msgspec

from systems.common.tls import trust_for
from systems.reports.codes import Code
from systems.reports.failures import Trouble
from systems.reports.model.errors import of_network, of_status
from systems.reports.model.response import PartialAnswer, read_stream, read_whole
from systems.reports.prompt import response_format
from systems.reports.schemas import Schema
from systems.reports.settings import Settings

_MOST_ERROR_BODY = 64_000
REDACTED = "[redacted]"


class Answer(TypedDict):
    """The record of an answered call. It holds all that later steps need, so the call is never repeated."""

    text: str
    finish: str
    refusal: str
    overflow: bool  #: the answer exceeded the size limit
    model: str
    request_id: str
    tokens_in: int
    tokens_out: int
    estimated: bool  #: the provider sent no token counts, so they were estimated


@asynccontextmanager
async def model_client(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    """Open an HTTP client for the model, with its key, timeouts and connection limit."""
    seconds = settings.model_timeout_ms / 1000
    headers = {"accept-encoding": "identity"}  # the size of a compressed answer could not be bounded
    if settings.model_api_key:
        headers["authorization"] = f"Bearer {settings.model_api_key}"
    async with httpx2.AsyncClient(
        base_url=f"{settings.model_url}/",
        headers=headers,
        timeout=httpx2.Timeout(seconds, connect=min(seconds, 10.0)),
        limits=httpx2.Limits(max_connections=settings.worker_concurrency),
        verify=trust_for(settings.model_url),
    ) as client:
        yield client


async def ask_model(
    client: httpx2.AsyncClient,
    settings: Settings,
    messages: list[dict[str, str]],
    schema: Schema,
    *,
    request_id: str,
) -> Answer:
    """Call the model once and return its answer, even an unusable one, because it was paid for.

    Raises `Trouble` with the code of what went wrong when there is no answer.
    """
    partial = PartialAnswer(settings.output_max_bytes)
    try:
        with anyio.fail_after(settings.model_timeout_ms / 1000):
            await _call(client, _body(settings, messages, schema), partial, request_id)
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, TimeoutError) as error:
        raise of_network(error) from None  # without the cause, whose request has the key in its headers
    return _answer(partial, settings, messages, request_id)


def _body(settings: Settings, messages: list[dict[str, str]], schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": settings.model_name,
        "messages": messages,
        "temperature": 0,
        settings.model_tokens_field: settings.model_max_tokens,
    }
    wanted = response_format(settings.model_response_format, schema)
    if wanted is not None:
        body["response_format"] = wanted
    if settings.model_stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


async def _call(
    client: httpx2.AsyncClient, body: dict[str, Any], partial: PartialAnswer, request_id: str
) -> None:
    headers = {"x-client-request-id": request_id, "idempotency-key": request_id}
    async with client.stream("POST", "chat/completions", json=body, headers=headers) as answer:
        answer_headers = {name.lower(): value for name, value in answer.headers.items()}
        if answer.status_code != 200:
            raise of_status(answer.status_code, answer_headers, await _error_body(answer))
        if answer_headers.get("content-encoding", "identity") not in ("", "identity"):
            raise Trouble(Code.MODEL_5XX, "the model sent a compressed answer that was not requested")
        pieces = answer.aiter_raw(64 * 1024)
        if answer_headers.get("content-type", "").startswith("text/event-stream"):
            await read_stream(pieces, partial, answer_headers)
        else:
            await read_whole(pieces, partial, answer_headers)


async def _error_body(answer: httpx2.Response) -> Any:
    read = b""
    async for piece in answer.aiter_raw(64 * 1024):
        read += piece
        if len(read) > _MOST_ERROR_BODY:
            return None
    try:
        return msgspec.json.decode(read)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _answer(
    partial: PartialAnswer, settings: Settings, messages: list[dict[str, str]], request_id: str
) -> Answer:
    usage = partial.usage or {}
    reported = [_count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens")]
    estimated = None in reported
    estimates = [sum(len(message["content"]) for message in messages) // 4 + 1, len(partial.text) // 4 + 1]
    tokens_in, tokens_out = (
        estimate if count is None else count for count, estimate in zip(reported, estimates, strict=True)
    )
    return Answer(
        text=redacted(partial.text, settings),
        finish=partial.finish or "",
        refusal=redacted(partial.refusal, settings),
        overflow=partial.overflow,
        model=partial.model or settings.model_name,
        request_id=request_id,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        estimated=estimated,
    )


def redacted(text: str, settings: Settings) -> str:
    """Return *text* without lone surrogates and our API key, which a proxy may repeat."""
    clean = text.encode(errors="replace").decode()  # a lone surrogate cannot be stored
    return clean.replace(settings.model_api_key, REDACTED) if settings.model_api_key else clean


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None


def cost_of(answer: Answer, settings: Settings) -> int:
    """Return the cost of *answer* in millionths of the currency of the prices, rounded to the nearest."""
    return round(
        answer["tokens_in"] * settings.model_price_in + answer["tokens_out"] * settings.model_price_out
    )
