"""The API: who may ask, what is refused at once, what operators see (P5, P6, P9, E14)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from systems.reports.codes import CODES, Code
from systems.reports.samples import invoice
from systems.reports.tasks import QUEUE
from systems.reports.web.site import make_site
from tests.commands import run_command
from tests.systems.provider.providers import ROOT
from tests.systems.reports.test_crashes import environment
from tests.systems.reports.world import World

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ANSWER = (
    '{"invoice_number": "A-1", "issued": "2026-05-03", "seller": "Acme", "currency": "EUR", "total": "12"}'
)


class Site:
    def __init__(self, world: World, http: httpx2.AsyncClient, keys: dict[str, str]) -> None:
        self.world, self._http, self._keys = world, http, keys

    async def ask(
        self, who: str, method: str, path: str, body: Any = None, **headers: str
    ) -> httpx2.Response:
        return await self.send(who, method, path, json=body, headers=headers)

    async def send(self, who: str, method: str, path: str, **options: Any) -> httpx2.Response:
        if who in self._keys:
            options["headers"] = {"authorization": f"Bearer {self._keys[who]}", **options.get("headers", {})}
        return await self._http.request(method, path, **options)

    async def ended(self, job_id: str) -> dict[str, Any]:
        return await self.until(job_id, lambda shown: shown["status"] in ("succeeded", "failed"))

    async def until(self, job_id: str, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(20):
            while True:
                shown: dict[str, Any] = (await self.ask("operator", "GET", f"/reports/{job_id}")).json()
                if true(shown):
                    return shown
                await asyncio.sleep(0.02)

    async def made(self, who: str, source: str, **headers: str) -> dict[str, Any]:
        answer = await self.ask(who, "POST", "/reports", {"source": source, "schema": "invoice"}, **headers)
        assert answer.status_code == 202, answer.text
        return await self.ended(answer.json()["id"])


@pytest.fixture
async def site(make_world: Callable[..., World]) -> AsyncIterator[Site]:
    async with opened(make_world(model_price_in=1.0, model_price_out=2.0)) as made:
        yield made


@pytest.fixture
async def patient_site(world: World) -> AsyncIterator[Site]:
    """On each kind of store; a report that fails waits for a minute."""
    patient = World(
        world.folder,
        world.settings.database_url,
        world.provider,
        model_api_key="sk-canary-0123456789",
        retry_first_ms=60_000,
    )
    async with opened(patient) as made:
        yield made


@contextlib.asynccontextmanager
async def opened(world: World) -> AsyncIterator[Site]:
    async with world.working():
        keys = {}
        for who in ("ann", "bob"):
            keys[who] = (await world.app.keys.create("owner", owner=who))[1]
        for role in ("viewer", "operator"):
            keys[role] = (await world.app.keys.create(role))[1]
        served = make_site(world.reports)
        async with served.router.lifespan_context(served):
            transport = httpx2.ASGITransport(served, raise_app_exceptions=False)
            async with httpx2.AsyncClient(transport=transport, base_url="http://reports") as http:
                yield Site(world, http, keys)


async def test_an_owner_asks_and_gets_its_report_and_nobody_elses(site: Site) -> None:  # E66
    shown = await site.made("ann", site.world.put("a.txt", invoice(3)))
    assert (shown["status"], shown["attempt"], shown["message"]) == ("succeeded", 1, "")
    report = await site.ask("ann", "GET", shown["report"])
    assert report.json()["invoice_number"] == "A-00003"
    assert report.headers["x-content-type-options"] == "nosniff"
    assert report.headers["content-type"] == "application/json"
    for path in (f"/reports/{shown['id']}", f"/reports/{shown['id']}/report"):
        assert (await site.ask("bob", "GET", path)).status_code == 403
    assert len((await site.ask("ann", "GET", "/reports")).json()["reports"]) == 1
    assert (await site.ask("bob", "GET", "/reports")).json()["reports"] == []


async def test_whoever_has_no_key_or_the_wrong_one_gets_nothing(site: Site) -> None:  # E66
    shown = await site.made("ann", site.world.put("a.txt"))
    operators = [f"/reports/{shown['id']}/captures", "/captures"]
    for path in ("/reports", f"/reports/{shown['id']}", *operators, "/stats", "/metrics"):
        assert (await site.ask("nobody", "GET", path)).status_code == 401
        wrong = await site.ask("nobody", "GET", path, authorization="Bearer wrong")
        assert wrong.status_code == 401
    for path in operators:
        for who in ("ann", "viewer"):
            assert (await site.ask(who, "GET", path)).status_code == 403
    for path in ("retry", "revalidate"):
        assert (await site.ask("ann", "POST", f"/reports/{shown['id']}/{path}", {})).status_code == 403
    assert (
        await site.ask("viewer", "POST", "/reports", {"source": "a.txt", "schema": "x"})
    ).status_code == 403


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"source": "a.exe", "schema": "invoice"}, 415, "UNSUPPORTED_TYPE"),
        ({"source": "../a.txt", "schema": "invoice"}, 422, "INVALID_SOURCE"),
        ({"source": "s3://elsewhere/a.txt", "schema": "invoice"}, 422, "INVALID_SOURCE"),
        ({"source": "a.txt", "schema": "nosuch"}, 422, "INVALID_SCHEMA"),
        ({"source": "a.txt", "schema": {"type": "nonsense"}}, 422, "INVALID_SCHEMA"),
    ],
)
async def test_what_can_never_succeed_is_refused_at_once_and_on_record(
    site: Site, body: dict[str, Any], status: int, code: str
) -> None:  # P4
    answer = await site.ask("ann", "POST", "/reports", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    shown = (await site.ask("ann", "GET", f"/reports/{answer.json()['id']}")).json()
    assert (shown["status"], shown["error_code"], shown["attempt"]) == ("failed", code, 0)
    assert site.world.provider.calls() == []


async def test_nonsense_is_answered_in_one_line(site: Site) -> None:  # E14
    bodies: list[Any] = [{}, [], {"source": 1, "schema": "x"}, {"source": "a.txt", "schema": "x", "more": 1}]
    for body in bodies:
        answer = await site.ask("ann", "POST", "/reports", body)
        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")
        assert answer.json()["detail"].isprintable()
    large = {"source": "a.txt", "schema": "invoice", "instructions": "x" * 300_000}
    assert (await site.ask("ann", "POST", "/reports", large)).status_code == 413
    for path in ("/reports/nonsense", "/reports/00000000-0000-0000-0000-000000000000", "/nowhere"):
        assert (await site.ask("ann", "GET", path)).status_code in (404, 422)


async def test_a_request_that_is_sent_twice_is_one_report(site: Site) -> None:  # E37
    site.world.put("a.txt")
    first = await site.made("ann", "a.txt", **{"idempotency-key": "k1"})
    again = await site.made("ann", "a.txt", **{"idempotency-key": "k1"})
    assert (first["id"], len(site.world.provider.calls())) == (again["id"], 1)
    other = {"source": "b.txt", "schema": "invoice"}
    answer = await site.ask("ann", "POST", "/reports", other, **{"idempotency-key": "k1"})
    assert answer.status_code == 422
    assert (await site.made("bob", "a.txt", **{"idempotency-key": "k1"}))["id"] != first["id"]


async def test_an_operator_sees_captures_revalidates_and_completes(site: Site) -> None:  # P5
    site.world.provider.fault(content=ANSWER)
    shown = await site.made("ann", site.world.put("a.txt"))
    assert (shown["error_code"], shown["errors"][0]["path"]) == ("SCHEMA_MISMATCH", "/total")
    [capture] = (await site.ask("operator", "GET", "/captures", None)).json()["captures"]
    assert (capture["job_id"], capture["body"]["answer"]["text"]) == (shown["id"], ANSWER)
    assert (await site.ask("operator", "GET", "/captures?code=NOT_JSON")).json()["captures"] == []
    path = f"/reports/{shown['id']}/revalidate"
    still = await site.ask("operator", "POST", path, {})
    assert (still.status_code, still.json()["fits"]) == (422, False)
    done = await site.ask("operator", "POST", path, {"schema": {"type": "object"}})
    assert (done.status_code, done.json()["fits"]) == (200, True)
    assert (await site.ended(shown["id"]))["status"] == "succeeded"
    assert (await site.ask("ann", "GET", f"/reports/{shown['id']}/report")).json() == json.loads(ANSWER)
    assert len(site.world.provider.calls()) == 1
    assert (await site.ask("operator", "POST", path, {"schema": {"type": "object"}})).status_code == 409


async def test_an_operator_retries_with_or_without_the_answer(site: Site) -> None:  # P9
    site.world.provider.fault(content="no", times=1)
    shown = await site.made("ann", site.world.put("a.txt"))
    path = f"/reports/{shown['id']}/retry"
    assert (await site.ask("operator", "POST", path, {"keep_answer": True})).status_code == 200
    assert (await site.ended(shown["id"]))["error_code"] == "NOT_JSON"
    assert len(site.world.provider.calls()) == 1
    assert (await site.ask("operator", "POST", path, {"keep_answer": False})).status_code == 200
    assert (await site.ended(shown["id"]))["status"] == "succeeded"
    assert len(site.world.provider.calls()) == 2
    assert (await site.ask("operator", "POST", path, {})).status_code == 409
    missing = await site.made("ann", "missing.txt")
    site.world.put("missing.txt")
    path = f"/reports/{missing['id']}/retry"
    assert (await site.ask("operator", "POST", path, {"keep_answer": False})).status_code == 200
    assert (await site.ended(missing["id"]))["status"] == "succeeded"


async def test_a_report_that_waits_for_its_next_try_is_retried_at_once(patient_site: Site) -> None:  # P9
    site = patient_site
    site.world.provider.fault(status=503, times=1)
    body = {"source": site.world.put("a.txt"), "schema": "invoice"}
    path = f"/reports/{(await site.ask('ann', 'POST', '/reports', body)).json()['id']}"
    async with asyncio.timeout(20):
        while True:
            shown = (await site.ask("ann", "GET", path)).json()
            if shown["next_run_at"] is not None:
                break
            await asyncio.sleep(0.02)
    assert shown["message"].endswith("It will be tried again.")
    assert (await site.ask("operator", "POST", f"{path}/retry", {})).status_code == 200
    ended = await site.ended(shown["id"])
    assert (ended["status"], ended["attempt"]) == ("succeeded", 2)
    refused = await site.ask("operator", "POST", f"{path}/retry", {})
    assert (refused.status_code, refused.json()["code"]) == (409, "NOT_READY")


@pytest.mark.parametrize("action", ["retry", "revalidate"])
async def test_a_report_that_is_run_anew_says_nothing_of_before(site: Site, action: str) -> None:  # P9
    site.world.provider.fault(content=ANSWER)
    shown = await site.made("ann", site.world.put("a.txt"))
    assert shown["message"]
    await site.world.app.queues.pause(QUEUE)
    body = {"schema": {"type": "object"}} if action == "revalidate" else {"keep_answer": False}
    answer = await site.ask("operator", "POST", f"/reports/{shown['id']}/{action}", body)
    assert answer.status_code == 200
    waiting = (await site.ask("ann", "GET", f"/reports/{shown['id']}")).json()
    assert (waiting["status"], waiting["message"], waiting["error_code"]) == ("queued", "", None)
    await site.world.app.queues.resume(QUEUE)


async def upload(site: Site, who: str, name: str, data: bytes, **query: str) -> httpx2.Response:
    return await site.send(who, "POST", "/documents", content=data, params={"name": name, **query})


async def test_an_uploaded_document_is_stored_in_its_owners_folder_and_becomes_a_report(
    site: Site,
) -> None:  # P1 P7
    text = invoice(7).encode()
    answer = await upload(site, "ann", "../../bob/in\u202evoice.txt", text)
    assert answer.status_code == 201
    source = answer.json()["source"]
    owner, digest, name = source.split("/")
    assert (owner, len(digest), name) == ("ann", 16, "invoice.txt")
    assert (site.world.documents / source).read_bytes() == text
    assert (await upload(site, "ann", "invoice.txt", text)).json()["source"] == source  # stored once
    shown = await site.made("ann", source)
    assert (await site.ask("ann", "GET", shown["report"])).json()["invoice_number"] == "A-00007"


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("a.pdf", b"text", "UNSUPPORTED_TYPE"),
        ("..", b"text", "INVALID_SOURCE"),
        ("a.txt", b"\x00\x01", "NOT_TEXT"),
        ("a.txt", b"  ", "NOT_TEXT"),
        ("a.txt", b"x" * 2_000_001, "TOO_LARGE"),
    ],
)
async def test_an_upload_that_no_report_could_be_made_of_is_refused_at_once(
    site: Site, name: str, data: bytes, code: str
) -> None:  # P4
    answer = await upload(site, "ann", name, data)
    assert (answer.status_code, answer.json()["code"]) == (CODES[Code(code)].status, code)
    assert not (site.world.documents / "ann").exists()


async def test_uploads_need_a_key_that_may_request_and_are_limited(
    make_world: Callable[..., World],
) -> None:  # P4 E66
    async with opened(make_world(upload_rate="2/h")) as site:
        assert (await upload(site, "nobody", "a.txt", b"a")).status_code == 401
        assert (await upload(site, "viewer", "a.txt", b"a")).status_code == 403
        answers = [await upload(site, "ann", "a.txt", b"a") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [201, 201, 429]
        assert int(answers[2].headers["retry-after"]) > 1
        assert (await upload(site, "bob", "a.txt", b"a")).status_code == 201


async def test_a_report_in_progress_says_which_step_runs(site: Site) -> None:  # P1 E42
    site.world.provider.fault(hang=True)
    asked = await site.ask(
        "ann", "POST", "/reports", {"source": site.world.put("a.txt"), "schema": "invoice"}
    )
    shown = await site.until(asked.json()["id"], lambda shown: shown["step"] == "llm")
    assert shown["status"] == "processing"
    site.world.provider.reset()


async def test_the_figures_are_told_as_series_and_as_lines(site: Site) -> None:  # P6 E62
    await site.made("ann", site.world.put("a.txt"))
    site.world.provider.fault(content="no")
    await site.made("ann", site.world.put("b.txt"))
    text = (await site.ask("viewer", "GET", "/metrics")).text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines["reports_final_failure_ratio"]) == float(lines["reports_schema_failure_ratio"]) == 0.5
    assert float(lines["reports_captures_total"]) == float(lines["reports_retries_total"]) + 1 == 1
    assert float(lines["reports_retry_ratio"]) == float(lines["reports_cost_of_retries_total"]) == 0
    assert float(lines['reports_ended_total{code="NOT_JSON",status="failed"}']) == 1
    assert float(lines["reports_time_to_success_mean_seconds"]) > 0
    stats = (await site.ask("viewer", "GET", "/stats")).json()
    assert (
        stats["cost"] == stats["cost_per_success"] == (stats["tokens_in"] + 2 * stats["tokens_out"]) / 1e6 > 0
    )
    command = [sys.executable, "-m", "systems.reports", "stats", "--json"]
    said = run_command(command, cwd=ROOT, env=environment(site.world))
    assert json.loads(said.stdout) == stats


async def test_an_owner_reads_only_below_its_own_folder_where_that_is_asked_for(
    make_world: Callable[..., World],
) -> None:
    world = make_world(documents_per_owner=True)
    world.put("bob/b.txt")
    async with world.working():
        _, key = await world.app.keys.create("owner", owner="ann")
        served = make_site(world.reports)
        async with served.router.lifespan_context(served):
            async with httpx2.AsyncClient(
                transport=httpx2.ASGITransport(served), base_url="http://reports"
            ) as http:
                site = Site(world, http, {"ann": key})
                for source in ("bob/b.txt", "file://documents/bob/b.txt", "b.txt"):
                    answer = await site.ask(
                        "ann", "POST", "/reports", {"source": source, "schema": "invoice"}
                    )
                    assert answer.status_code == 403
