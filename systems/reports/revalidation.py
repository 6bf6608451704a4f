"""Checks a captured answer against a changed schema, and completes its report without calling the model."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast import Conflict, Holdfast
from systems.reports.codes import Code
from systems.reports.failures import Trouble
from systems.reports.normalise import NotJson, normalise
from systems.reports.records import Capture, Records
from systems.reports.schemas import Schema, digest, find_schema, violations
from systems.reports.settings import Settings

#: The codes of captures that can be checked again: those of complete answers.
_COMPLETE_ANSWERS = (Code.NOT_JSON.value, Code.SCHEMA_MISMATCH.value)


class Judged(NamedTuple):
    """The outcome of a check; *value* is None when the answer holds no JSON value."""

    fits: bool
    errors: list[dict[str, str]]
    value: Any
    repairs: list[str]


def judge(capture: Capture, schema: Schema) -> Judged:
    """Check the captured answer against *schema*."""
    try:
        found = normalise(capture.body["answer"]["text"])
    except NotJson as error:
        return Judged(False, [{"path": "", "message": str(error)}], None, [])
    errors = violations(schema, found.value)
    return Judged(not errors, errors, found.value, found.repairs)


async def revalidate(
    app: Holdfast,
    records: Records,
    settings: Settings,
    job_id: str,
    *,
    schema: str | Schema | None = None,
    complete: bool = True,
    by: str = "api",
) -> Judged:
    """Check the newest complete capture of a job against a schema.

    Without *schema* this is the current schema of the name in the job's payload. If the answer fits and
    *complete* is set, the job is retried and uses the captured answer. Raises `Trouble` when the job has no
    complete capture, and `Conflict` when it is no longer failed.
    """
    captures = [each for each in await records.captures_of(job_id) if each.code in _COMPLETE_ANSWERS]
    if not captures:
        raise Trouble(Code.NOT_READY, "no complete answer of this report was captured")
    given = (await app.jobs.get(job_id)).payload.get("schema") if schema is None else schema
    chosen = find_schema(given, settings.schemas_dir)
    judged = judge(captures[0], chosen)
    if judged.fits and complete:
        await records.override(captures[0], chosen, digest(chosen), by)
        try:
            await app.jobs.retry(job_id, by=by)
        except Conflict:
            raise  # another request retried the job first, and its attempt may need the override
        except BaseException:
            await records.forget_override(job_id)
            raise
    return judged
