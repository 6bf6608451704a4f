"""The converter's Holdfast app: one task, `convert`, behind the breaker of the gateway.

`build(settings)` returns it. `systems.converter.app:app` is built from the environment, for `holdfast
worker`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2

from holdfast import THIS_JOB, Every, Holdfast, Job, PayloadError, Retention, Retry, Task
from holdfast.policies import BreakerPolicy
from systems.common.parts import Part
from systems.common.threads import in_thread
from systems.common.tls import trust_for
from systems.converter.codes import DECLARED
from systems.converter.content import LONGEST_MAPPING, LONGEST_NAME, MAX_BYTES
from systems.converter.failures import IO_ATTEMPTS, SourceGone, failed, rule
from systems.converter.gateway_client import Source, ask_gateway
from systems.converter.paths import removed_path, result_path, source_path
from systems.converter.retention import Swept, sweep
from systems.converter.settings import Settings

QUEUE, GATEWAY, HOUSEKEEPING = "convert", "gateway", "housekeeping"
SWEEP_EVERY = timedelta(minutes=10)
_SHA256 = re.compile("[0-9a-f]{64}")
#: The time of an attempt beyond the gateway's: it reads the source and writes the result.
_DISK_TIME = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Converter:
    """The converter's app and task, with their settings."""

    settings: Settings
    app: Holdfast
    convert: Task[..., Coroutine[Any, Any, str]]

    def source(self, job_id: str) -> Path:
        """Return the path of a job's PDF."""
        return source_path(self.settings.uploads_dir, job_id)

    def removed(self, job_id: str) -> Path:
        """Return the path of the mark that the user of this job has removed it."""
        return removed_path(self.settings.results_dir, job_id)

    def result(self, job_id: str) -> Path:
        """Return the path of a job's XML."""
        return result_path(self.settings.results_dir, job_id)


def dedupe_key(sha256: str, mapping: str, size: int) -> str:
    """Return the key that two equal uploads of one owner share (C1).

    The engine adds the owner to every key.
    """
    return f"{sha256}:{size}:{mapping}"


def build(settings: Settings, **options: Any) -> Converter:
    """Return the converter with these settings. *options* are passed on to `Holdfast`."""
    app = Holdfast(
        settings.database_url,
        metrics_prefix="",  # the sources fix the metric names of E62 without a prefix
        lease=timedelta(seconds=settings.worker_lease_ttl_sec),
        concurrency=settings.worker_concurrency,
        retention=Retention(
            results=timedelta(seconds=settings.result_retention_sec),
            jobs=timedelta(seconds=max(settings.job_retention_sec, settings.result_retention_sec)),
            events=timedelta(seconds=settings.job_retention_sec),
        ),
        **options,
    )
    for name, line in DECLARED.items():
        app.error_code(name, line)
    app.dependency(
        GATEWAY,
        breaker=BreakerPolicy(
            window=settings.circuit_window,
            threshold=settings.circuit_fail_threshold,
            cooldown=timedelta(milliseconds=settings.circuit_cooldown_ms),
            mode=settings.circuit_mode,
            fail_code="GW_5XX",
        ),
        probe=f"{settings.gateway_url}/healthz",
    )

    @app.lifespan
    async def client() -> AsyncIterator[httpx2.AsyncClient]:
        limits = httpx2.Limits(max_connections=settings.worker_concurrency)
        # No timeouts here: the timeout of the whole call in `convert` covers them all.
        async with httpx2.AsyncClient(
            base_url=settings.gateway_url,
            timeout=None,
            limits=limits,
            verify=trust_for(settings.gateway_url),
        ) as gateway_client:
            yield gateway_client

    gateway_time = timedelta(milliseconds=settings.gateway_timeout_ms)

    @app.task(
        queue=QUEUE,
        retry=retry_policy(settings),
        timeout=gateway_time + _DISK_TIME,
        depends_on=GATEWAY,
        max_crashes=settings.worker_max_crashes,
        rules=[rule],
        check=check_upload,
    )
    async def convert(
        mapping: str, *, name: str = "", sha256: str = "", size: int = 0, job: Job = THIS_JOB
    ) -> str:
        """Convert the source of this job and return the file name of its result.

        *name*, *sha256* and *size* describe the upload, for display only. *name* is never used as a path.
        """
        source = source_path(settings.uploads_dir, job.id)
        target = result_path(settings.results_dir, job.id)
        try:
            async with asyncio.timeout(gateway_time.total_seconds()):
                await _convert(job, source, target, mapping)
        except Exception as error:
            raise failed(error, attempt=job.attempt, max_attempts=job.max_attempts) from error
        return target.name

    @app.schedule(Every(SWEEP_EVERY))
    @app.task(queue=HOUSEKEEPING, timeout="5m")
    async def sweep_files() -> Swept:
        """Remove the files whose retention has ended, and those without a job (C9)."""
        return await sweep(app, settings)

    return Converter(settings, app, convert)


async def _convert(job: Job, source: Path, target: Path, mapping: str) -> None:
    opened = await in_thread(_open, source, target)
    if opened is None:
        return
    # The epoch is part of the name: a worker that lost its lease and wakes up again writes to its own file.
    with opened, Part(target, str(job.epoch)) as part:
        job.gateway_status = await ask_gateway(job.resources, opened, mapping, part, correlation=job.id)


def _open(source: Path, target: Path) -> Source | None:
    """Return the source, or None if an earlier attempt wrote the result but its worker died after that."""
    if target.exists():
        return None
    try:
        return Source(source)
    except FileNotFoundError:
        raise SourceGone("the source no longer exists") from None


def check_upload(owner: str | None, args: Mapping[str, Any]) -> None:
    """Raise `PayloadError` for arguments that no upload could have, however the job was enqueued."""
    if len(args["mapping"]) > LONGEST_MAPPING or not args["mapping"].isprintable():
        raise PayloadError(f"mapping must have at most {LONGEST_MAPPING} printable characters")
    if len(args["name"]) > LONGEST_NAME or not args["name"].isprintable():
        raise PayloadError(f"name must have at most {LONGEST_NAME} printable characters")
    if not 0 <= args["size"] <= MAX_BYTES:
        raise PayloadError(f"size must be from 0 to {MAX_BYTES:,} bytes")
    if args["sha256"] and not _SHA256.fullmatch(args["sha256"]):
        raise PayloadError("sha256 must have 64 hexadecimal digits")


def retry_policy(settings: Settings) -> Retry:
    """Return the retry policy of a conversion: the newer source document's waits, or the older one's."""
    attempts = settings.retry_max_attempts
    by_code = {"IO_ERROR": min(IO_ATTEMPTS, attempts)}
    if settings.retry_backoff == "triple":
        base = timedelta(milliseconds=settings.retry_base_delay_ms)
        return Retry(attempts, base=base, factor=3, jitter="20%", attempts_by_code=by_code)
    return Retry(
        attempts,
        base=timedelta(milliseconds=settings.retry_base_delay_ms),
        factor=2,
        jitter=timedelta(milliseconds=settings.retry_jitter_max_ms),
        attempts_by_code=by_code,
    )
