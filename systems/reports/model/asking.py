"""One call of the model: bounded in time and size, with a client request id, its use of tokens counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict

import anyio
import httpx2
import msgspec

from systems.common.calling import certificates
from systems.reports.codes import Code
from systems.reports.failures import Trouble
from systems.reports.model.errors import of_network, of_status
from systems.reports.model.reading import Said, read_stream, read_whole
from systems.reports.prompt import response_format
from systems.reports.schemas import Schema
from systems.reports.settings import Settings

_MOST_ERROR_BODY = 64_000
REDACTED = "[redacted]"


class Answer(TypedDict):
    """What is recorded of a call that was answered: enough never to call again."""

    text: str
    finish: str
    refusal: str
    overflow: bool  #: there was more of it than may be
    model: str
    request_id: str
    tokens_in: int
    tokens_out: int
    estimated: bool  #: the provider did not say how many tokens it were


@asynccontextmanager
async def model_client(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    seconds = settings.model_timeout_ms / 1000
    headers = {"accept-encoding": "identity"}  # what is compressed has no size that can be bounded
    if settings.model_api_key:
        headers["authorization"] = f"Bearer {settings.model_api_key}"
    async with httpx2.AsyncClient(
        base_url=f"{settings.model_url}/",
        headers=headers,
        timeout=httpx2.Timeout(seconds, connect=min(seconds, 10.0)),
        limits=httpx2.Limits(max_connections=settings.worker_concurrency),
        verify=certificates(settings.model_url),
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
    """Ask once. `Trouble` names what went wrong; an answer that is of no use is an answer, and was paid for."""
    said = Said(settings.output_max_bytes)
    try:
        with anyio.fail_after(settings.model_timeout_ms / 1000):
            await _call(client, _body(settings, messages, schema), said, request_id)
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, TimeoutError) as error:
        raise of_network(error) from None  # its request has the key in its headers
    return _answer(said, settings, messages, request_id)


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


async def _call(client: httpx2.AsyncClient, body: dict[str, Any], said: Said, request_id: str) -> None:
    headers = {"x-client-request-id": request_id, "idempotency-key": request_id}
    async with client.stream("POST", "chat/completions", json=body, headers=headers) as answer:
        told = {name.lower(): value for name, value in answer.headers.items()}
        if answer.status_code != 200:
            raise of_status(answer.status_code, told, await _error_body(answer))
        if told.get("content-encoding", "identity") not in ("", "identity"):
            raise Trouble(Code.MODEL_5XX, "the model answered with something compressed, unasked")
        pieces = answer.aiter_raw(64 * 1024)
        if told.get("content-type", "").startswith("text/event-stream"):
            await read_stream(pieces, said, told)
        else:
            await read_whole(pieces, said, told)


async def _error_body(answer: httpx2.Response) -> Any:
    taken = b""
    async for piece in answer.aiter_raw(64 * 1024):
        taken += piece
        if len(taken) > _MOST_ERROR_BODY:
            return None
    try:
        return msgspec.json.decode(taken)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _answer(said: Said, settings: Settings, messages: list[dict[str, str]], request_id: str) -> Answer:
    usage = said.usage or {}
    counted = [_count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens")]
    estimated = None in counted
    guessed = [sum(len(message["content"]) for message in messages) // 4 + 1, len(said.text) // 4 + 1]
    tokens_in, tokens_out = (
        guess if count is None else count for count, guess in zip(counted, guessed, strict=True)
    )
    return Answer(
        text=redacted(said.text, settings),
        finish=said.finish or "",
        refusal=redacted(said.refusal, settings),
        overflow=said.overflow,
        model=said.model or settings.model_name,
        request_id=request_id,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        estimated=estimated,
    )


def redacted(text: str, settings: Settings) -> str:
    """A model has never seen our key; a proxy that answers in its place may have."""
    clean = text.encode(errors="replace").decode()  # half a character is nothing that can be stored
    return clean.replace(settings.model_api_key, REDACTED) if settings.model_api_key else clean


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None


def cost_of(answer: Answer, settings: Settings) -> int:
    """In millionths of the currency of the prices, rounded to the nearest."""
    return round(
        answer["tokens_in"] * settings.model_price_in + answer["tokens_out"] * settings.model_price_out
    )
