"""What schemathesis is told about us, when it runs in a process of its own: why a proper request may be refused all the same."""

from __future__ import annotations

from typing import Any

import schemathesis

#: What a document cannot say: whether a task, a version, a page is there.
_BEYOND_THE_DOCUMENT = {
    "BAD_CURSOR",
    "CONFLICT",
    "EXPIRED",
    "IDEMPOTENCY_KEY_IN_FLIGHT",
    "IDEMPOTENCY_KEY_REUSED",
    "JOB_FAILED",
    "NOT_FOUND",
    "NOT_READY",
    "PRECONDITION_FAILED",
    "SECRET_SHOWN_ONCE",
    "TOO_LARGE",
    "UNAUTHENTICATED",
    "UNKNOWN_TASK",
}


#: What the words of a schema cannot say: which letters can be printed or stored, how long a duration is in
#: all, where a URL leads, what a job has, what a policy file may say.
_BEYOND_A_SCHEMA = (
    "is given twice",  # an argument with two values
    "use printable characters only",
    "a duration is 0 to 100 years",
    "a time must be in the years 1970 to 2199",
    "has no recorded step",
    "is not one of this app",
    "a key that lasts no time",
    "this URL cannot be called",
    "contains NUL",
    "holds NUL",
    "convert() needs the argument",
    "is not before until",  # a range of statistics
    "begin later, or choose a longer step",
    "choose a longer step or a shorter range",
    "convert() has no argument",
    "this section cannot be overridden",
    "this is a whole section",
    "write it as in holdfast.toml",
    "cannot be written in a policy file",
    "override by key:",  # what the policy file refuses
    "an override that lasts no time",
    "it is a duration, 1s to 30d",
    "more than 1000 buckets",
    "say with rate= where it ends",
    "ramp_from is",
    "say which task the patch is for",
    "no task named",
)


@schemathesis.hook
def map_body(ctx: Any, body: Any) -> Any:
    """A task that there is: else next to nothing would be enqueued, and no walk come far."""
    for job in body.get("jobs", [body]) if isinstance(body, dict) else []:
        if isinstance(job, dict) and _is_word(job.get("task")) and isinstance(job.get("args", {}), dict):
            job |= {"task": "convert", "args": {"pdf": str(job.get("args", {}))[:20]}}
    return body


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= 500


@schemathesis.check
def a_proper_request_is_refused_for_its_meaning_alone(ctx: Any, response: Any, case: Any) -> None:
    """In the place of `positive_data_acceptance`, which knows statuses only."""
    if case.meta is None or not case.meta.generation.mode.is_positive or response.status_code < 400:
        return
    told = response.json()
    code, errors = told.get("code"), told.get("errors", [])
    if code in _BEYOND_THE_DOCUMENT or (response.status_code == 503 and "checks" in told):
        return
    said = f"refused as {code}: {told.get('detail')} {errors}"
    assert code == "INVALID", said
    assert any(words in said for words in _BEYOND_A_SCHEMA), said


@schemathesis.check
def a_refusal_is_a_problem_of_ours(ctx: Any, response: Any, case: Any) -> None:
    if response.status_code >= 400 and not (response.status_code == 503 and "checks" in response.json()):
        told = response.json()
        assert told["status"] == response.status_code
        assert told["code"]
        assert told["detail"]
        assert "\n" not in told["detail"]
        assert response.headers["content-type"] == ["application/problem+json"]
    assert response.headers["cache-control"] == ["no-store"]
