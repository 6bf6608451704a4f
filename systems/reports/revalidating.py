"""Judging a captured answer anew, by a schema that was changed, and completing its report without asking the model."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast import Conflict, Holdfast
from systems.reports.codes import Code
from systems.reports.failures import Trouble
from systems.reports.normalise import NotJson, normalise
from systems.reports.records import Capture, Records
from systems.reports.schemas import Schema, digest, find_schema, violations
from systems.reports.settings import Settings

#: What can be judged anew: an answer that came whole.
_WHOLE = (Code.NOT_JSON.value, Code.SCHEMA_MISMATCH.value)


class Judged(NamedTuple):
    fits: bool
    errors: list[dict[str, str]]
    value: Any
    repairs: list[str]


def judge(capture: Capture, schema: Schema) -> Judged:
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
    """Judge the newest capture of a job by *schema*, or by the one its own name has now. If it fits and *complete* is set,
    the job is retried, and takes the captured answer: `Conflict` when it is not failed any more."""
    whole = [capture for capture in await records.captures_of(job_id) if capture.code in _WHOLE]
    if not whole:
        raise Trouble(Code.NOT_READY, "no answer of this report was captured whole")
    given = (await app.job(job_id)).payload.get("schema") if schema is None else schema
    chosen = find_schema(given, settings.schemas_dir)
    judged = judge(whole[0], chosen)
    if judged.fits and complete:
        await records.override(whole[0], chosen, digest(chosen), by)
        try:
            await app.retry(job_id, by=by)
        except Conflict:
            raise  # somebody was first, and their run may need it: what fits is the same captured answer
        except BaseException:
            await records.forget_override(job_id)
            raise
    return judged
