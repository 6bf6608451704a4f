"""Documents and reports in a bucket, with a bucket that fails: moto's server behind a proxy with faults (P7)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

from devservices.proxy import Proxy
from devservices.s3 import S3
from holdfast import State
from systems.reports.documents import Documents, Place
from systems.reports.failures import DocumentsUnavailable, Trouble
from systems.reports.samples import invoice
from systems.reports.watch import job_id_of
from systems.reports.web.uploads import store_document
from tests.systems.provider.providers import RunningProvider
from tests.systems.reports.world import World

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with S3() as running:
        running.create_bucket("papers")
        yield running


@pytest.fixture
def bucket(server: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """What is between us and the bucket."""
    port = int(server.url.rpartition(":")[2])
    with Proxy("127.0.0.1", port, postgres=False) as proxy:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        yield proxy


@pytest.fixture
def world(tmp_path: Path, sqlite_url: str, provider: RunningProvider, bucket: Proxy) -> World:
    return World(
        tmp_path,
        sqlite_url,
        provider,
        model_api_key="sk-canary-0123456789",
        documents_url=("s3://papers/in",),
        reports_url="s3://papers/out",
        retry_first_ms=300,
        retry_max_attempts=8,
    )


def put(server: S3, key: str, data: str, **headers: str) -> str:
    headers.setdefault("content-type", "text/plain")  # urllib would say that it is a form
    request = urllib.request.Request(f"{server.url}/papers/{key}", data.encode(), headers, method="PUT")
    urllib.request.urlopen(request).close()
    return f"s3://papers/{key}"


async def get(key: str) -> Any:
    return json.loads((await Place("s3://papers").read(key, 10_000)).data)


async def test_a_document_of_a_bucket_becomes_a_report_in_a_bucket(server: S3, world: World) -> None:  # P1 P7
    source = put(server, "in/a.txt", invoice(5), **{"content-type": "text/plain"})
    async with world.working():
        row = await world.made(source)
        assert row.state is State.COMPLETE, row.error_message
        assert (await get(f"out/{row.result['key']}"))["invoice_number"] == "A-00005"


async def test_an_uploaded_document_is_stored_in_the_bucket(world: World) -> None:  # P1 P7
    text = invoice(6).encode()
    documents = Documents(list(world.settings.documents_url))
    source = await store_document(documents, "ann", "mine.txt", text)
    async with world.working():
        row = await world.made(source)
        assert row.state is State.COMPLETE, row.error_message
        assert (await get(f"out/{row.result['key']}"))["invoice_number"] == "A-00006"


async def test_metadata_that_does_not_fit_the_content_is_fatal(server: S3, world: World) -> None:  # P4
    right = hashlib.sha256(invoice(1).encode()).hexdigest()
    cases: list[tuple[dict[str, str], str | None]] = [
        ({"content-type": "image/png"}, "CORRUPT_METADATA"),
        ({"content-type": "text/plain; charset=utf-16"}, "CORRUPT_METADATA"),
        ({"x-amz-meta-sha256": "0" * 64, "content-type": "text/plain"}, "CORRUPT_METADATA"),
        ({"content-encoding": "gzip", "content-type": "text/plain"}, "UNSUPPORTED_TYPE"),
        ({"x-amz-meta-sha256": right, "content-type": "text/plain; charset=UTF-8"}, None),
    ]
    async with world.working():
        for number, (headers, code) in enumerate(cases):
            row = await world.made(put(server, f"in/m{number}.txt", invoice(1), **headers))
            assert (headers, row.error_code) == (headers, code)
        assert len(world.provider.calls()) == 1


async def test_a_bucket_that_is_away_is_waited_for_and_the_answer_is_kept(
    server: S3, world: World, bucket: Proxy
) -> None:  # P3 E40
    source = put(server, "in/away.txt", invoice(9))
    world.provider.fault(latency_ms=3_000)
    async with world.working():
        handle = await world.reports.report.enqueue(source, "invoice")
        async with asyncio.timeout(20):
            while not world.provider.calls():  # noqa: ASYNC110 - another process, which rings no bell here
                await asyncio.sleep(0.01)
        bucket.refuse = True  # the model is being asked; now the bucket goes away
        bucket.reset()
        async with asyncio.timeout(20):
            while (failure := (await handle.job()).last_failure) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert failure["code"] == "IO_ERROR"
        bucket.heal()
        row = await world.ended(handle)
        assert (row.state, len(world.provider.calls())) == (State.COMPLETE, 1)
        assert row.attempt > 1


async def test_a_write_whose_answer_was_lost_is_found_done(server: S3, bucket: Proxy) -> None:  # E6
    place = Place("s3://papers/out")
    loss = bucket.lose_answer("ETag")
    try:
        await place.create("lost.json", b"{}")
    except DocumentsUnavailable:
        await place.create("lost.json", b"{}")
    assert loss.is_set()
    assert await get("out/lost.json") == {}
    with pytest.raises(Trouble, match="another report"):
        await place.create("lost.json", b"[]")


async def test_a_missing_bucket_says_nothing_about_the_document(bucket: Proxy) -> None:  # P3
    with pytest.raises(DocumentsUnavailable):
        await Place("s3://nosuchbucket").read("a.txt", 100)
    place, key = Documents(["s3://papers/in"]).find("s3://papers/in/nothing.txt")
    with pytest.raises(Trouble, match="no such object"):
        await place.read(key, 100)


async def test_new_objects_become_reports_exactly_once(
    server: S3, tmp_path: Path, sqlite_url: str, provider: RunningProvider, bucket: Proxy
) -> None:  # E39
    world = World(
        tmp_path, sqlite_url, provider, model_api_key="sk-canary-0123456789",
        watch_url="s3://papers/inbox", watch_every_ms=1_000,
    )  # fmt: skip
    for number in range(3):
        put(server, f"inbox/{number}.txt", invoice(number))
    put(server, "inbox/.hidden.txt", "x")
    put(server, "inbox/picture.png", "x")
    async with world.working() as records:
        async with asyncio.timeout(20):
            while await world.app.jobs.count(task="report", state="complete") < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        looks = await world.app.jobs.count(task="watch_documents", state="complete")
        async with asyncio.timeout(20):
            while await world.app.jobs.count(task="watch_documents", state="complete") < looks + 1:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await world.app.jobs.count(task="report") == 3
        # What was cut short between the job and its note is done again, with one job.
        await records.database.run("DELETE FROM reports_seen")
        bucket_itself = S3Store("papers", client_options={"allow_http": True})
        obstore.put(bucket_itself, "inbox/0.txt", invoice(10).encode())  # a new content is a new document
        async with asyncio.timeout(20):
            while await world.app.jobs.count(task="report", state="complete") < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await world.app.jobs.count(task="report") == 4
    assert len(provider.calls()) == 4
    assert job_id_of("a", "1") != job_id_of("a", "2")
