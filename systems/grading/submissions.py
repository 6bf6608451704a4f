"""Store a submission together with its request, in one transaction (G1), and send a failed one again."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread

from holdfast import JobRow, new_job_id
from systems.common.parts import Part
from systems.grading.messages import Skill
from systems.grading.tasks import Grading


async def submit(
    grading: Grading,
    skill: Skill,
    *,
    text: str | None = None,
    audio: bytes | None = None,
    owner: str | None = None,
) -> JobRow:
    """Store a submission and the request for its grade, and return its job. Both are durable then (G1).

    The recording is written before that. If the transaction fails, its file is left over without a job.
    """
    app = grading.app
    submission_id = str(new_job_id())
    arguments: dict[str, Any] = {"skill": skill, "text": text, "audio": None}
    if audio is not None:
        arguments["audio"] = await _store_recording(grading.settings.audio_dir, submission_id, audio)
    grade = grading.grade.options(id=submission_id, owner=owner, deadline=grading.sla(skill))
    await grade.enqueue(**arguments)
    return await app.jobs.get(submission_id)


async def send_again(grading: Grading, submission_id: str, *, by: str) -> JobRow:
    """Send a failed submission again, as a new generation with a new request and deadline. Return its job.

    Raises:
        Conflict: The submission has not failed.
    """
    await grading.app.jobs.retry(submission_id, by=by)
    return await grading.app.jobs.get(submission_id)


async def _store_recording(folder: Path, submission_id: str, audio: bytes) -> dict[str, Any]:
    target = folder / f"{submission_id}.wav"

    def write() -> None:
        with Part(target, "upload") as part:
            part.write(audio)
            part.publish()

    await anyio.to_thread.run_sync(write)
    digest = await anyio.to_thread.run_sync(partial(hashlib.sha256, audio))
    return {"name": target.name, "sha256": digest.hexdigest(), "size": len(audio)}
