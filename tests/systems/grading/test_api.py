"""The API by itself: what it takes in, what it refuses, who may see what."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.external import Done, Failed
from systems.grading.audio import LARGEST_AUDIO, make_recording
from systems.grading.settings import Settings
from systems.grading.tasks import Grading, build
from systems.grading.web.site import make_site

pytestmark = pytest.mark.anyio


@pytest.fixture
async def grading(tmp_path: Path) -> AsyncIterator[Grading]:
    url = f"sqlite:///{tmp_path / 'grading.db'}"
    built = build(Settings(database_url=url, audio_dir=tmp_path / "audio", broker_url="amqp://127.0.0.1:1/"))
    async with built.app:
        yield built


@pytest.fixture
async def http(grading: Grading) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(make_site(grading), raise_app_exceptions=False, client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def test_a_writing_submission_is_taken_in(http: httpx2.AsyncClient) -> None:  # G1
    answer = await http.post("/submissions", json={"skill": "writing", "text": "Hello."})
    assert answer.status_code == 201
    made = answer.json()
    assert {"submissionId", "requestId", "status", "deadlineAt"} <= made.keys()
    assert made["status"] == "PENDING"
    assert (await http.get(answer.headers["location"])).json()["submissionId"] == made["submissionId"]


async def test_a_speaking_submission_is_taken_in_with_its_recording(
    http: httpx2.AsyncClient, grading: Grading
) -> None:  # G1
    sound = make_recording("hello")
    answer = await http.post("/submissions", data={"skill": "speaking"}, files={"audio": ("../x.wav", sound)})
    assert answer.status_code == 201
    name = f"{answer.json()['submissionId']}.wav"
    assert (grading.settings.audio_dir / name).read_bytes() == sound


JSON = {"content-type": "application/json"}
BAD: dict[str, tuple[int, dict[str, Any]]] = {
    "nothing": (415, {}),
    "a page": (415, {"content": b"<html>", "headers": {"content-type": "text/html"}}),
    "a pickle": (
        415,
        {"content": b"\x80\x04.", "headers": {"content-type": "application/x-python-serialize"}},
    ),
    "no JSON": (422, {"content": b"{", "headers": JSON}),
    "not UTF-8": (422, {"content": b'{"skill": "writing", "text": "\xff"}', "headers": JSON}),
    "half a character": (422, {"content": b'{"skill": "writing", "text": "\\ud800"}', "headers": JSON}),
    "a NUL": (422, {"content": b'{"skill": "writing", "text": "a\\u0000b"}', "headers": JSON}),
    "deep": (422, {"content": b"[" * 100_000, "headers": JSON}),
    "no skill": (422, {"json": {"text": "a"}}),
    "another skill": (422, {"json": {"skill": "dancing", "text": "a"}}),
    "no text": (422, {"json": {"skill": "writing"}}),
    "an empty text": (422, {"json": {"skill": "writing", "text": ""}}),
    "white space": (422, {"json": {"skill": "writing", "text": " \n "}}),
    "a text of another kind": (422, {"json": {"skill": "writing", "text": 7}}),
    "a long text": (422, {"json": {"skill": "writing", "text": "x" * 50_001}}),
    "more fields": (422, {"json": {"skill": "writing", "text": "a", "deadlineAt": "never"}}),
    "speaking as JSON": (422, {"json": {"skill": "speaking", "text": "a"}}),
    "no audio": (422, {"data": {"skill": "speaking"}, "files": {"video": ("a", b"a")}}),
    "empty audio": (422, {"data": {"skill": "speaking"}, "files": {"audio": ("a", b"")}}),
    "writing as a form": (422, {"data": {"skill": "writing"}, "files": {"audio": ("a", b"a")}}),
    "a broken form": (400, {"content": b"--x", "headers": {"content-type": "multipart/form-data"}}),
    "50 MB": (413, {"content": b" " * 50_000_000, "headers": JSON}),
    "too much audio": (
        413,
        {"data": {"skill": "speaking"}, "files": {"audio": ("a", bytes(LARGEST_AUDIO + 70_000))}},
    ),
}


@pytest.mark.parametrize("bad", list(BAD))
async def test_what_is_no_submission_is_refused_in_one_line_and_leaves_nothing(  # G1
    http: httpx2.AsyncClient, grading: Grading, bad: str
) -> None:
    status, request = BAD[bad]
    answer = await http.post("/submissions", **request)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    detail = answer.json()["detail"]
    assert detail
    assert "\n" not in detail
    assert sum((await grading.app.jobs.counts()).values()) == 0
    assert not list(grading.settings.audio_dir.glob("*"))


async def test_an_unknown_submission_is_not_found(http: httpx2.AsyncClient) -> None:
    for name in ("00000000-0000-7000-8000-000000000000", "x", "%00", "a" * 300):
        for path in (f"/submissions/{name}", f"/submissions/{name}/events"):
            assert (await http.get(path)).status_code == 404


async def test_a_parameter_that_cannot_be_read_is_refused_in_one_line(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/outbox", params={"limit": "many"})
    assert answer.status_code == 422
    assert answer.json()["code"] == "INVALID"


async def test_events_are_told_as_they_come_until_the_end(
    http: httpx2.AsyncClient, grading: Grading
) -> None:  # G5
    made = (await http.post("/submissions", json={"skill": "writing", "text": "Hello."})).json()
    name = made["submissionId"]
    following = asyncio.create_task(http.get(f"/submissions/{name}/events"))
    await asyncio.sleep(0)
    await grading.app.external.begin(name, generation=1, worker="w")
    await grading.app.external.end(name, Done({"overall": 5.0}), generation=1, worker="w")
    text = (await asyncio.wait_for(following, 10)).text
    told = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert [one["status"] for one in told] == ["PENDING", "PROCESSING", "COMPLETED"]
    last = [line[4:] for line in text.splitlines() if line.startswith("id: ")][1]
    rest = (await http.get(f"/submissions/{name}/events", headers={"last-event-id": last})).text
    assert rest.count("data: ") == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "1.2.3.4"},
        {"Forwarded": "for=1.2.3.4"},
        {"Via": "1.1 proxy"},
        {"Host": "evil.example"},
        {"Host": "["},
        {"Origin": "http://evil.example"},
        {"Origin": "http://["},
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=str,
)
async def test_without_a_key_proxies_and_pages_of_others_are_not_let_in(
    http: httpx2.AsyncClient, headers: dict[str, str]
) -> None:
    assert (await http.get("/dlq")).status_code != 401
    assert (await http.get("/dlq", headers=headers)).status_code == 401
    assert (await http.get("/progress", headers=headers)).status_code == 401


async def test_keys_separate_learners_and_operators(http: httpx2.AsyncClient, grading: Grading) -> None:
    def bearer(secret: str) -> dict[str, str]:
        return {"authorization": f"Bearer {secret}"}

    _, ann = await grading.app.keys.create("owner", owner="ann")
    _, ben = await grading.app.keys.create("owner", owner="ben")
    _, boss = await grading.app.keys.create("operator")
    _, guest = await grading.app.keys.create("viewer")
    assert (await http.get("/outbox")).status_code == 401  # there are keys now
    submission = {"skill": "writing", "text": "Hello."}
    assert (await http.post("/submissions", json=submission, headers=bearer(guest))).status_code == 403
    made = (await http.post("/submissions", json=submission, headers=bearer(ann))).json()
    path = f"/submissions/{made['submissionId']}"
    answers = {
        name: (await http.get(path, headers=bearer(key))).status_code
        for name, key in {"ann": ann, "ben": ben, "boss": boss, "guest": guest, "nobody": "x"}.items()
    }
    assert answers == {"ann": 200, "ben": 404, "boss": 200, "guest": 200, "nobody": 401}
    for operators in ("/outbox", "/dlq"):
        assert (await http.get(operators, headers=bearer(ann))).status_code == 403
    assert (await http.post(f"{path}/retry", headers=bearer(ann))).status_code == 403


async def test_the_list_has_the_callers_submissions_with_what_was_submitted(
    http: httpx2.AsyncClient, grading: Grading
) -> None:  # G1 G6
    late = (await http.post("/submissions", json={"skill": "writing", "text": "a  b\n" * 100})).json()
    await grading.app.external.end(late["submissionId"], Failed("TIMEOUT"), generation=1, worker="w")
    sound = {"audio": ("a.wav", make_recording("hello"))}
    await http.post("/submissions", data={"skill": "speaking"}, files=sound)
    page = (await http.get("/submissions", params={"limit": 1})).json()
    [spoken] = page["submissions"]
    assert (spoken["skill"], spoken["excerpt"], spoken["audioBytes"]) == (
        "speaking",
        None,
        len(sound["audio"][1]),
    )
    [written] = (await http.get("/submissions", params={"after": page["next"]})).json()["submissions"]
    assert written["submissionId"] == late["submissionId"]
    assert (written["excerpt"][:7], len(written["excerpt"]) <= 200, written["lateResults"]) == (
        "a b a b",
        True,
        [],
    )
    _, ann = await grading.app.keys.create("owner", owner="ann")
    assert (await http.get("/submissions")).status_code == 401
    own = await http.get("/submissions", headers={"authorization": f"Bearer {ann}"})
    assert own.json() == {"submissions": [], "next": None}


async def test_only_what_has_failed_is_sent_again(http: httpx2.AsyncClient, grading: Grading) -> None:  # G4
    made = (await http.post("/submissions", json={"skill": "writing", "text": "Hello."})).json()
    name = made["submissionId"]
    await grading.app.external.end(name, Done({}), generation=1, worker="w")
    assert (await http.post(f"/submissions/{name}/retry")).status_code == 409
    made = (await http.post("/submissions", json={"skill": "writing", "text": "Hello."})).json()
    await grading.app.external.end(made["submissionId"], Failed("PROVIDER_REFUSED"), generation=1, worker="w")
    again = (await http.post(f"/submissions/{made['submissionId']}/retry")).json()
    assert (again["status"], again["requestId"]) == ("PENDING", f"{made['submissionId']}.2")
    assert (again["failureReason"], again["message"]) == (None, None)


async def test_a_broker_that_is_away_keeps_nobody_from_submitting_and_is_told_of_in_one_line(  # G2
    http: httpx2.AsyncClient,
) -> None:
    assert (await http.post("/submissions", json={"skill": "writing", "text": "Hello."})).status_code == 201
    answer = await http.get("/dlq")
    assert answer.status_code == 503
    assert answer.json()["code"] == "BROKER_AWAY"
