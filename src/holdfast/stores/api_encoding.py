"""The shapes that both databases give to what the front doors keep: rows as keys, operations and webhooks, and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

from holdfast.domain.access import AccessKey, Role
from holdfast.domain.job import Enqueued, JobId, NewJob
from holdfast.domain.operation import Operation, OperationAction, Progress
from holdfast.domain.webhook import Seed, Webhook
from holdfast.engine.api_store import EarlierRequest, NamedRequest, Repeated, StartedRequest
from holdfast.stores.encoding import Moment, Row, from_json, maybe, to_json


# -- keys ---------------------------------------------------------------------------------------------------------------
def access_key(row: Row, moment: Moment) -> AccessKey:
    return AccessKey(
        id=row["id"],
        name=row["name"],
        role=Role(row["role"]),
        owner=row["owner"],
        digest=row["digest"],
        created_at=moment(row["created_at"]),
        expires_at=maybe(row["expires_at"], moment),
        revoked_at=maybe(row["revoked_at"], moment),
        last_used_at=maybe(row["last_used_at"], moment),
    )


# -- requests -----------------------------------------------------------------------------------------------------------
def request_digest(request: NamedRequest) -> bytes:
    """What a request is found by: a name may be as long and as odd as its sender likes."""
    scope, name = (sha256(text.encode(errors="surrogatepass")).digest() for text in request[:2])
    return sha256(scope + name).digest()


def answers_json(answers: Sequence[Enqueued]) -> str:
    return to_json([[answer.id, answer.duplicate] for answer in answers])


def repeated(fingerprint: bytes, answers: str) -> Repeated:
    told = tuple(Enqueued(JobId(job_id), duplicate) for job_id, duplicate in from_json(answers))
    return Repeated(fingerprint=fingerprint, answers=told)


def first_answer(before: Repeated, jobs: Sequence[NewJob]) -> Sequence[Enqueued] | Repeated:
    """*before*; or, where it is about these very jobs, what this call was to be answered: its answer was lost."""
    new = [answer.id for answer in before.answers if not answer.duplicate]
    return before.answers if new and {job.id for job in jobs}.issuperset(new) else before


def begun(token: str, holder: str, until: int) -> StartedRequest:
    """*until* is when it is anybody's again, in microseconds. The ticket is what the row of the request holds meanwhile."""
    return StartedRequest(token, to_json({"token": token, "holder": holder, "until": until}))


def left(ticket: str) -> str:
    """What the row holds when nobody carries the request out."""
    return begun(from_json(ticket)["token"], "", 0).ticket


def answered(answer: str) -> str:
    return to_json({"answer": answer})


def begun_before(
    row: str, request: NamedRequest, fingerprint: bytes, holder: str, now: int, span: int
) -> StartedRequest | EarlierRequest:
    """What is to become of a request whose *row* is there: it is kept, or ours to carry out from *now* on."""
    kept = from_json(row)
    if "answer" in kept:
        return EarlierRequest(fingerprint, kept["answer"])
    if kept["holder"] == holder:  # the answer to this very call was lost
        return StartedRequest(kept["token"], row)
    if fingerprint != request.fingerprint or kept["until"] > now:
        return EarlierRequest(fingerprint, None)
    return begun(kept["token"], holder, now + span)


# -- operations ---------------------------------------------------------------------------------------------------------
def operation(row: Row, moment: Moment) -> Operation:
    return Operation(
        id=row["id"],
        action=OperationAction(row["action"]),
        filter=from_json(row["conditions"]),
        by=row["by"],
        options=from_json(row["options"]),
        rate=row["rate"],
        owner=row["owner"],
        progress=Progress(row["progress"]),
        matched=row["matched"],
        done=row["done"],
        refused=row["refused"],
        cursor=row["cursor"],
        epoch=row["epoch"],
        error=row["error"],
        created_at=moment(row["created_at"]),
        updated_at=moment(row["updated_at"]),
    )


# -- webhooks -----------------------------------------------------------------------------------------------------------
def webhook(row: Row, moment: Moment) -> Webhook:
    return Webhook(
        id=row["id"],
        url=row["url"],
        events=tuple(from_json(row["events"])),
        owner=row["owner"],
        seeds=tuple(_seed(stored) for stored in from_json(row["secrets"])),
        inbound=bool(row["inbound"]),
        description=row["description"],
        created_at=moment(row["created_at"]),
        failing_since=maybe(row["failing_since"], moment),
        disabled_at=maybe(row["disabled_at"], moment),
        disabled_reason=row["disabled_reason"],
    )


def _seed(stored: Any) -> Seed:
    if isinstance(stored, str):  # a secret of an older version
        return Seed(stored, "")
    until = stored.get("until")
    return Seed(stored["salt"], stored["check"], None if until is None else datetime.fromisoformat(until))


def _stored_seed(seed: Seed) -> Any:
    if not seed.check:
        return seed.salt
    return {"salt": seed.salt, "check": seed.check, "until": seed.until and seed.until.isoformat()}


def webhook_columns(webhook: Webhook) -> dict[str, Any]:
    """All but the moments."""
    return {
        "id": webhook.id,
        "url": webhook.url,
        "events": to_json(webhook.events),
        "owner": webhook.owner,
        "secrets": to_json([_stored_seed(seed) for seed in webhook.seeds]),
        "inbound": webhook.inbound,
        "description": webhook.description,
        "disabled_reason": webhook.disabled_reason,
    }
