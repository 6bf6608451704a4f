"""Takes a submission in: stored with its request in one transaction (G1), or not at all."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread

from holdfast import JobRow
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
    """Durable when this returns: the submission, PENDING, and the message that asks for its grade (G1).

    The recording is on disk before. When the transaction then fails, it is left over and nobody knows of it.
    """
    app = grading.app
    submission_id = str(app.new_id())
    arguments: dict[str, Any] = {"skill": skill, "text": text, "audio": None}
    if audio is not None:
        arguments["audio"] = await _keep(grading.settings.audio_dir, submission_id, audio)
    chosen = grading.grade.options(id=submission_id, owner=owner, deadline=grading.sla(skill))
    await chosen.enqueue(**arguments)
    return await app.job(submission_id)


async def send_again(grading: Grading, submission_id: str, *, by: str) -> JobRow:
    """By hand, after it has failed: a new generation, with a request and a deadline of its own. `Conflict` when it has not
    failed."""
    await grading.app.retry(submission_id, by=by)
    return await grading.app.job(submission_id)


async def _keep(folder: Path, submission_id: str, audio: bytes) -> dict[str, Any]:
    target = folder / f"{submission_id}.wav"

    def write() -> None:
        with Part(target, "upload") as part:
            part.write(audio)
            part.publish()

    await anyio.to_thread.run_sync(write)
    digest = await anyio.to_thread.run_sync(partial(hashlib.sha256, audio))
    return {"name": target.name, "sha256": digest.hexdigest(), "size": len(audio)}
