"""The stand-in provider, called by the official `openai` client as any other would be (P7)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from systems.provider.extraction import extract
from systems.reports.samples import invoice
from systems.reports.schemas import find_schema
from tests.systems.provider.providers import ROOT, RunningProvider

pytestmark = pytest.mark.slow

SCHEMA = find_schema("invoice", ROOT)
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "invoice", "schema": SCHEMA}}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningProvider]:
    with RunningProvider(key="sk-right") as provider:
        yield provider


@pytest.fixture
def provider(running: RunningProvider) -> Iterator[RunningProvider]:
    yield running
    running.reset()


@pytest.fixture
def client(provider: RunningProvider) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{provider.url}/v1", api_key="sk-right", max_retries=0, timeout=10
    ) as client:
        yield client


def ask(client: openai.OpenAI, **more: Any) -> Any:
    messages: Any = [{"role": "system", "content": "Extract."}, {"role": "user", "content": invoice(42)}]
    return client.chat.completions.create(
        model="stand-in-1", messages=messages, response_format=FORMAT, **more
    )


def test_the_official_client_gets_what_is_in_the_document(client: openai.OpenAI) -> None:  # P7
    answer = ask(client)
    found = json.loads(answer.choices[0].message.content)
    assert (found["invoice_number"], found["issued"], found["total"]) == ("A-00042", "2026-05-03", 1234.5)
    assert found["lines"][1] == {"description": "Angle brackets", "quantity": 40, "price": 4.1}
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert [model.id for model in client.models.list()] == ["stand-in-1"]


def test_a_stream_says_the_same_as_a_whole_answer_and_tells_its_tokens(client: openai.OpenAI) -> None:  # P7
    whole = ask(client)
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert len(chunks) > 5
    assert chunks[-1].usage == whole.usage


def test_the_same_request_has_the_same_answer(client: openai.OpenAI) -> None:  # P7
    assert ask(client) == ask(client)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"status": 429, "retry_after": 7}, openai.RateLimitError),
        ({"status": 503}, openai.InternalServerError),
        ({"status": 400}, openai.BadRequestError),
        ({"reset": True}, openai.APIConnectionError),
    ],
)
def test_faults_reach_the_official_client_as_its_own_errors(
    provider: RunningProvider, client: openai.OpenAI, fault: dict[str, Any], error: type[Exception]
) -> None:  # P7
    provider.fault(**fault)
    with pytest.raises(error) as raised:
        ask(client)
    if "retry_after" in fault:
        assert isinstance(raised.value, openai.APIStatusError)
        assert raised.value.response.headers["retry-after"] == "7"


def test_a_hanging_call_is_let_go_when_the_switch_is_moved(
    provider: RunningProvider, client: openai.OpenAI
) -> None:  # P7
    provider.fault(hang=True)
    with pytest.raises(openai.APITimeoutError):
        ask(client, timeout=0.2)


@pytest.mark.parametrize(
    ("fault", "finish", "begins"),
    [
        ({"length_cut": True}, "length", "{"),
        ({"content_filter": True}, "content_filter", ""),
        ({"bad_json": True}, "stop", "{"),
        ({"fenced": True}, "stop", "Here is"),
        ({"huge_bytes": 100_000}, "stop", '{"text": "xxx'),
        ({"content": "<html>"}, "stop", "<html>"),
    ],
)
def test_answers_can_be_spoiled(
    provider: RunningProvider, client: openai.OpenAI, fault: dict[str, Any], finish: str, begins: str
) -> None:  # P7
    provider.fault(**fault)
    choice = ask(client).choices[0]
    assert choice.finish_reason == finish
    assert choice.message.content.startswith(begins)
    streamed = "".join(
        chunk.choices[0].delta.content or "" for chunk in ask(client, stream=True) if chunk.choices
    )
    assert streamed == choice.message.content


def test_a_refusal_is_told_as_one(provider: RunningProvider, client: openai.OpenAI) -> None:  # P7
    provider.fault(refusal=True)
    assert ask(client).choices[0].message.refusal == "I cannot help with that."


def test_a_broken_stream_ends_in_the_middle(provider: RunningProvider, client: openai.OpenAI) -> None:  # P7
    provider.fault(broken_stream=True)
    with pytest.raises(Exception, match=r"(?i)closed|connection|incomplete"):
        list(ask(client, stream=True))


def test_faults_are_counted_out_and_not_drawn(provider: RunningProvider, client: openai.OpenAI) -> None:
    provider.fault(status=500, percent=50, times=2)
    seen = []
    for _ in range(8):
        try:
            ask(client)
            seen.append(200)
        except openai.InternalServerError:
            seen.append(500)
    assert seen == [200, 500, 200, 500, 200, 200, 200, 200]
    assert [call["status"] for call in provider.calls()] == seen


def test_a_wrong_key_is_refused_and_nonsense_is_no_fault(provider: RunningProvider) -> None:
    with openai.OpenAI(base_url=f"{provider.url}/v1", api_key="sk-wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            ask(client)
    assert provider.http.post("/faults", json={"colour": "blue"}).status_code == 422
    assert provider.http.post("/faults", json={"status": 42}).status_code == 422
    headers = {"authorization": "Bearer sk-right"}
    assert provider.http.post("/v1/chat/completions", content=b"{", headers=headers).status_code == 400


def test_what_the_document_does_not_say_is_left_out() -> None:
    assert extract(SCHEMA, "Total: 12\n") == {"total": 12.0, "lines": []}
    assert extract({}, "Total: 12") == {}
