"""The task `convert`, run by a real worker on SQLite against a real gateway that is made to fail."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from uuid_utils import uuid7

from holdfast import JobRow, State
from systems.converter.samples import article, plain
from systems.converter.settings import Settings
from systems.converter.tasks import Converter, build, dedupe_key
from tests.systems.converter.gateways import RunningGateway

ENDED = (State.COMPLETE, State.FAILED)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with RunningGateway(tmp_path_factory.mktemp("gateway"), "--size", "1", "--faults") as gateway:
        yield gateway


@pytest.fixture
def gateway(running: RunningGateway) -> Iterator[RunningGateway]:
    yield running
    running.http.delete("/faults")


def settings_for(gateway: RunningGateway, folder: Path, **knobs: Any) -> Settings:
    return Settings(
        database_url=f"sqlite:///{folder / 'jobs.db'}",
        gateway_url=gateway.url,
        uploads_dir=folder / "uploads",
        results_dir=knobs.pop("results_dir", folder / "results"),
        retry_base_delay_ms=10,
        retry_jitter_max_ms=0,
        **knobs,
    )


@contextlib.asynccontextmanager
async def at_work(settings: Settings) -> AsyncIterator[Converter]:
    """The converter with a worker beside it, until the block ends."""
    settings.uploads_dir.mkdir(parents=True, exist_ok=True)
    converter = build(settings, poll="50ms", heartbeat="1s")
    async with converter.app:
        worker = asyncio.create_task(converter.app.run_worker())
        try:
            yield converter
        finally:
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await worker


async def converted(converter: Converter, pdf: bytes | None, mapping: str = "text") -> JobRow:
    """Upload, enqueue, and wait for the end."""
    job_id = str(uuid7())
    if pdf is not None:
        converter.source(job_id).write_bytes(pdf)
    handle = await converter.convert.options(id=job_id, owner="ann").enqueue(mapping, name="a.pdf")
    async with asyncio.timeout(60):
        while (row := await handle.job()).state not in ENDED:
            with contextlib.suppress(Exception):
                await handle.result(timeout="1s")
    return row


async def test_a_pdf_becomes_the_gateways_xml(gateway: RunningGateway, tmp_path: Path) -> None:  # C6
    async with at_work(settings_for(gateway, tmp_path)) as converter:
        row = await converted(converter, article(), "jats")
        assert (row.state, row.attempt) == (State.COMPLETE, 1)
        assert row.result == converter.result(row.id).name
        assert converter.result(row.id).read_bytes() == gateway.convert(article(), "jats").content
        assert len(list(converter.settings.results_dir.iterdir())) == 1


async def test_a_refusal_ends_the_job_at_once_with_the_gateways_reason(
    gateway: RunningGateway, tmp_path: Path
) -> None:  # C4
    async with at_work(settings_for(gateway, tmp_path)) as converter:
        row = await converted(converter, plain(), "docx")
        assert (row.state, row.error_code, row.attempt) == (State.FAILED, "GW_4XX", 1)
        assert row.error_message is not None
        assert "There is no mapping 'docx'" in row.error_message
        [attempt] = await converter.app.jobs.attempts(row.id)
        assert attempt.failure is not None
        assert attempt.failure.gateway_status == 406


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"status": 502}, "GW_5XX"),
        ({"reset": True}, "GW_5XX"),
        ({"garbage": True}, "GW_5XX"),
        ({"truncate": True}, "GW_5XX"),
        ({"hang": True}, "GW_TIMEOUT"),
        ({"status": 408}, "GW_TIMEOUT"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value,
)
async def test_a_gateway_that_fails_is_asked_three_times(
    gateway: RunningGateway, tmp_path: Path, fault: dict[str, Any], code: str
) -> None:  # C4
    gateway.fault(**fault)
    async with at_work(
        settings_for(gateway, tmp_path, gateway_timeout_ms=400 if "hang" in fault else 20_000)
    ) as converter:
        row = await converted(converter, plain())
        assert (row.state, row.error_code, row.attempt) == (State.FAILED, code, 3)
        assert row.error_message is not None
        assert "We’ll retry" not in row.error_message  # C8
        results = converter.settings.results_dir
        assert not results.exists() or list(results.iterdir()) == []


async def test_a_gateway_that_comes_back_finishes_the_job(gateway: RunningGateway, tmp_path: Path) -> None:
    gateway.fault(status=503, percent=50)  # of two requests the second fails
    async with at_work(settings_for(gateway, tmp_path)) as converter:
        rows = [await converted(converter, plain()) for _ in range(2)]
        assert [(row.state, row.attempt) for row in rows] == [(State.COMPLETE, 1), (State.COMPLETE, 2)]


async def test_retry_after_of_the_gateway_is_honoured(gateway: RunningGateway, tmp_path: Path) -> None:  # C4
    gateway.fault(status=429, retry_after=1, percent=50)
    assert gateway.convert(plain()).status_code == 200  # so the next one fails, and the one after it does not
    async with at_work(settings_for(gateway, tmp_path)) as converter:
        row = await converted(converter, plain())
        assert (row.state, row.attempt) == (State.COMPLETE, 2)
        [first, _] = await converter.app.jobs.attempts(row.id)
        assert first.failure is not None
        assert (first.failure.code, first.failure.gateway_status) == ("GW_5XX", 429)
        assert row.last_attempt_at is not None
        assert (row.last_attempt_at - row.queued_at).total_seconds() >= 1


async def test_a_result_that_cannot_be_written_is_tried_once_more(
    gateway: RunningGateway, tmp_path: Path
) -> None:  # C4
    (tmp_path / "file").touch()
    settings = settings_for(gateway, tmp_path, results_dir=tmp_path / "file" / "results")
    async with at_work(settings) as converter:
        row = await converted(converter, plain())
        assert (row.state, row.error_code, row.attempt) == (State.FAILED, "IO_ERROR", 2)
        assert str(tmp_path) not in str(row.error_message)


async def test_a_result_that_is_there_is_not_computed_again(
    gateway: RunningGateway, tmp_path: Path
) -> None:  # C6
    gateway.fault(status=500)
    async with at_work(settings_for(gateway, tmp_path)) as converter:
        job_id = str(uuid7())
        target = converter.result(job_id)
        target.parent.mkdir()
        target.write_bytes(b"<done/>")
        handle = await converter.convert.options(id=job_id).enqueue("text")
        assert await handle.result(timeout="20s") == target.name
        assert target.read_bytes() == b"<done/>"


async def test_a_source_that_is_gone_cannot_be_converted(gateway: RunningGateway, tmp_path: Path) -> None:
    async with at_work(settings_for(gateway, tmp_path)) as converter:
        row = await converted(converter, None)
        assert (row.state, row.error_code, row.attempt) == (State.FAILED, "EXPIRED", 1)


async def test_a_gateway_that_stays_down_is_left_alone_until_it_is_back(
    gateway: RunningGateway, tmp_path: Path
) -> None:  # C4
    gateway.fault(status=502)
    knobs = {"circuit_cooldown_ms": 300, "retry_max_attempts": 20, "worker_concurrency": 4}
    async with at_work(settings_for(gateway, tmp_path, **knobs)) as converter:
        jobs = [asyncio.create_task(converted(converter, plain())) for _ in range(12)]
        async with asyncio.timeout(60):
            # The breaker is in the database, and rings no bell.
            while not any(seen.breaker.state == "open" for seen in await converter.app.breakers.list()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        gateway.http.delete("/faults")
        rows = await asyncio.gather(*jobs)
        assert [row.state for row in rows] == [State.COMPLETE] * 12


def test_twins_are_told_by_content_mapping_and_size() -> None:  # C1
    keys = {
        dedupe_key("a", "text", 1),
        dedupe_key("b", "text", 1),
        dedupe_key("a", "jats", 1),
        dedupe_key("a", "text", 2),
    }
    assert len(keys) == 4
