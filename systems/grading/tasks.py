"""Grading's Holdfast app. A submission is a job of the external task `grade`, which Celery workers run.

The store is the source of truth: it has the submission, its deadline and its outcome. Messages on the broker
are hints that may be duplicated, delayed or purged. The engine stores each with its submission, and publishes
it again until a worker begins.

`build(settings)` returns the app. `systems.grading.app:app` is built from the environment, for `holdfast up`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import msgspec

from holdfast import Holdfast, PayloadError, Retry, Task
from holdfast.policies import BreakerPolicy
from systems.grading.audio import LARGEST_AUDIO
from systems.grading.messages import LONGEST_TEXT, Audio, Skill, check_parts, encode_request
from systems.grading.settings import Settings
from systems.grading.topology import DELIVERY_LIMIT, REQUESTS, queues

GRADE, QUEUE = "grade", "grading"
#: The dependency whose breaker guards calls to the provider.
PROVIDER = "provider"
#: No practical limit: a job begins again only after a lost lease or by hand, and its deadline ends it long
#: before.
_UNLIMITED = 100
_RECLAIM_EVERY = timedelta(seconds=2)


class _Submission(msgspec.Struct, frozen=True):
    """The arguments of a submission, as in the message to the worker."""

    skill: Skill
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TEXT)] | None
    audio: Audio | None

    def __post_init__(self) -> None:
        check_parts(self.skill, self.text, self.audio)
        if self.text is not None and (not self.text.strip() or "\x00" in self.text):
            raise ValueError("a writing submission needs a text, without NUL")
        if self.audio is not None and self.audio.size > LARGEST_AUDIO:
            raise ValueError(f"a recording may have at most {LARGEST_AUDIO:,} bytes")


def check_submission(owner: str | None, args: Mapping[str, Any]) -> None:
    """Raise `PayloadError` for invalid arguments, however the job was enqueued.

    A recording must be named by an id, never by a path.
    """
    try:
        msgspec.convert(dict(args), _Submission)
    except msgspec.ValidationError as error:
        raise PayloadError(f"this is not a submission: {error}") from None


@dataclass(frozen=True, slots=True)
class Grading:
    """Grading's app and task, with their settings."""

    settings: Settings
    app: Holdfast
    grade: Task[..., Any]

    def sla(self, skill: str) -> timedelta:
        """Return the time that a submission of *skill* has until its deadline."""
        return timedelta(milliseconds=self.settings.sla_ms(skill))


def build(settings: Settings, **options: Any) -> Grading:
    """Return grading with these settings. *options* are passed on to `Holdfast`."""
    app = Holdfast(
        settings.database_url,
        metrics_prefix="",  # the sources fix the metric names of E62 without a prefix
        reclaim_every=_RECLAIM_EVERY,
        deadlines_every=timedelta(milliseconds=settings.timeout_check_interval_ms),
        outbox_poll=timedelta(milliseconds=settings.outbox_poll_interval_ms),
        outbox_batch=settings.outbox_batch_size,
        outbox_stale=timedelta(milliseconds=settings.outbox_stale_threshold_ms),
        **options,
    )
    app.topic(
        REQUESTS,
        to=settings.broker_url,
        declare=True,
        queue=REQUESTS,
        delivery_limit=DELIVERY_LIMIT,
        queue_arguments=queues()[REQUESTS],
        cap="10s",
    )

    app.dependency(
        PROVIDER,
        breaker=BreakerPolicy(
            window=settings.circuit_window,
            min_calls=settings.circuit_window,
            threshold=0.5,
            strictly_above=True,
            cooldown=timedelta(milliseconds=settings.circuit_cooldown_ms),
            trials=settings.circuit_trials,
            trials_to_close=settings.circuit_trials,
            votes=1,
        ),
        limiter=None,
        budget=None,
    )

    @app.task(
        name=GRADE,
        queue=QUEUE,
        execute="external",
        topic=REQUESTS,
        encode=encode_request,
        again_after=timedelta(milliseconds=settings.redispatch_after_ms),
        deadline=timedelta(milliseconds=settings.sla_writing_ms),
        lease=timedelta(milliseconds=settings.attempt_lease_ms),
        retry=Retry(_UNLIMITED, base="1s", cap="1m"),
        max_crashes=_UNLIMITED,
        stuck_after=None,
        check=check_submission,
    )
    async def grade(
        skill: str, text: str | None = None, audio: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Never called; its signature declares the arguments of a submission."""
        raise NotImplementedError

    return Grading(settings, app, grade)
