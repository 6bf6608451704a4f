"""`POST /v1/chat/completions`: a whole response or a stream, in the shapes of the protocol."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from systems.provider import rubric
from systems.provider.extraction import extract
from systems.provider.faults import Fault, cut, fault_of
from systems.provider.problems import problem

#: Characters in a piece of a stream.
_PIECE = 40
#: The creation time in every response: the same request gets the same response.
_CREATED = 1_700_000_000
MAX_REQUEST_BYTES = 8_000_000


class Message(msgspec.Struct):
    role: str
    content: Any = None


class Ask(msgspec.Struct):
    """The fields of a request that this service reads. It accepts others and ignores them."""

    model: str
    messages: list[Message]
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


class Reply(msgspec.Struct):
    """The content of a response, before it is put into the protocol's shape."""

    text: str
    finish: str = "stop"
    refusal: str | None = None


def routes() -> list[Route]:
    return [Route("/v1/chat/completions", _complete, methods=["POST"])]


async def _complete(request: Request) -> Response:
    try:
        body = await request.body()
    except ClientDisconnect:
        return Response(status_code=400)  # the client has gone
    if len(body) > MAX_REQUEST_BYTES:
        return problem(413, "invalid_request_error", "request_too_large", "The request is too large.")
    try:
        ask = msgspec.json.decode(body, type=Ask)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return problem(400, "invalid_request_error", None, f"The request cannot be read: {error}")
    fault = fault_of(request)
    reply = _spoil(_reply(ask), fault)
    call_id = "chatcmpl-" + hashlib.sha256(body).hexdigest()[:24]
    usage = _usage(ask, reply)
    if ask.stream:
        pieces = _stream(ask, reply, call_id, usage, fault, request)
        return StreamingResponse(pieces, media_type="text/event-stream")
    message = {"role": "assistant", "content": reply.text, "refusal": reply.refusal}
    choice = {"index": 0, "message": message, "finish_reason": reply.finish, "logprobs": None}
    return JSONResponse(_envelope(ask, call_id, "chat.completion", [choice]) | {"usage": usage})


async def _stream(
    ask: Ask, reply: Reply, call_id: str, usage: dict[str, Any], fault: Fault | None, request: Request
) -> AsyncIterator[bytes]:
    def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _event(_envelope(ask, call_id, "chat.completion.chunk", [choice]))

    yield event({"role": "assistant", "content": ""})
    if reply.refusal:
        yield event({"refusal": reply.refusal})
    size = max(_PIECE, len(reply.text) // 1000)  # at most about 1000 pieces
    for place in range(0, len(reply.text), size):
        if fault is not None and fault.broken_stream and place >= len(reply.text) // 2:
            cut(request.scope)
            return
        yield event({"content": reply.text[place : place + size]})
    while fault is not None and fault.endless:
        yield event({"content": " and so on" * 1000})
        await asyncio.sleep(0)  # lets a disconnected client be noticed
        if await request.is_disconnected():
            return
    yield event({}, reply.finish)
    if (ask.stream_options or {}).get("include_usage"):
        yield _event(_envelope(ask, call_id, "chat.completion.chunk", []) | {"usage": usage})
    yield b"data: [DONE]\n\n"


def _reply(ask: Ask) -> Reply:
    schema = _schema(ask.response_format)
    document = "\n".join(_text(message.content) for message in ask.messages if message.role == "user")
    if schema is None:
        return Reply(f"You said {len(document)} characters.")
    answer = (
        rubric.grade(document)
        if _name(ask.response_format) == rubric.SCHEMA_NAME
        else extract(schema, document)
    )
    text = json.dumps(answer, ensure_ascii=False)
    max_tokens = ask.max_completion_tokens or ask.max_tokens
    if max_tokens is not None and len(text) > 4 * max_tokens:
        return Reply(text[: 4 * max_tokens], finish="length")
    return Reply(text)


def _spoil(reply: Reply, fault: Fault | None) -> Reply:
    """Return the reply as *fault* changes it."""
    if fault is None:
        return reply
    if fault.length_cut:
        return Reply(reply.text[: len(reply.text) // 2], finish="length")
    if fault.refusal:
        return Reply("", refusal="I cannot help with that.")
    if fault.content_filter:
        return Reply("", finish="content_filter")
    if fault.bad_json:
        return Reply('{"invoice_number": "A-1", "total": ')
    if fault.fenced:
        return Reply(f"Here is what I found:\n\n```json\n{reply.text}\n```\n\nI hope that helps.")
    if fault.huge_bytes:
        return Reply('{"text": "' + "x" * fault.huge_bytes + '"}')
    return Reply(fault.content) if fault.content is not None else reply


def _schema(response_format: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    wrapper = (response_format or {}).get("json_schema")
    schema = wrapper.get("schema") if isinstance(wrapper, Mapping) else None
    return schema if isinstance(schema, Mapping) else None


def _name(response_format: Mapping[str, Any] | None) -> Any:
    wrapper = (response_format or {}).get("json_schema")
    return wrapper.get("name") if isinstance(wrapper, Mapping) else None


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return "" if content is None else str(content)


def _usage(ask: Ask, reply: Reply) -> dict[str, Any]:
    """Return the token counts of a call. Four characters count as one token."""
    prompt = sum(len(_text(message.content)) for message in ask.messages) // 4 + 1
    completion = len(reply.text) // 4 + 1
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _envelope(ask: Ask, call_id: str, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": call_id, "object": kind, "created": _CREATED, "model": ask.model, "choices": choices}


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"
