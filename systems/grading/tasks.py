"""Grading's Holdfast app. A submission is a job of the task `grade`, which is executed outside: by Celery workers.

The store is the truth: it has the submission, its deadline and its one end. What is on the broker are hints, which may be
doubled, delayed or purged; the engine stores each with its submission, and sends it again while nobody has begun.

`build(settings)` makes it; `systems.grading.app:app` is the one of the environment, for `holdfast up`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import msgspec

from holdfast import BreakerPolicy, Holdfast, PayloadError, Retry, Task
from systems.grading.audio import LARGEST_AUDIO
from systems.grading.messages import LONGEST_TEXT, Audio, Skill, ask, check_parts
from systems.grading.settings import Settings
from systems.grading.topology import DELIVERY_LIMIT, REQUESTS, queues

GRADE, QUEUE = "grade", "grading"
#: The name under which calls to the provider are judged.
PROVIDER = "provider"
#: A job of ours is begun again only when a lease ran out or a person asked; its deadline ends it long before this.
_MANY = 100
_LOOK_FOR_LOST = timedelta(seconds=2)


class _Submission(msgspec.Struct, frozen=True):
    """What a submission holds, as the worker's message will say it."""

    skill: Skill
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TEXT)] | None
    audio: Audio | None

    def __post_init__(self) -> None:
        check_parts(self.skill, self.text, self.audio)
        if self.text is not None and (not self.text.strip() or "\x00" in self.text):
            raise ValueError("a writing submission needs a text, without NUL")
        if self.audio is not None and self.audio.size > LARGEST_AUDIO:
            raise ValueError(f"a recording has at most {LARGEST_AUDIO:,} bytes")


def check_submission(owner: str | None, args: Mapping[str, Any]) -> None:
    """Refuse what is no submission, whatever road it came by: a recording is named by an id, never by a path."""
    try:
        msgspec.convert(dict(args), _Submission)
    except msgspec.ValidationError as error:
        raise PayloadError(f"this is no submission: {error}") from None


@dataclass(frozen=True, slots=True)
class Grading:
    """The app, its task and what they were made from."""

    settings: Settings
    app: Holdfast
    grade: Task[..., Any]

    def sla(self, skill: str) -> timedelta:
        return timedelta(milliseconds=self.settings.sla_ms(skill))


def build(settings: Settings, **options: Any) -> Grading:
    """Grading on these settings. *options* go to `Holdfast` as they are."""
    app = Holdfast(
        settings.database_url,
        metrics_prefix="",  # the names of E62 as its sources write them
        reclaim_every=_LOOK_FOR_LOST,
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
        encode=ask,
        again_after=timedelta(milliseconds=settings.redispatch_after_ms),
        deadline=timedelta(milliseconds=settings.sla_writing_ms),
        lease=timedelta(milliseconds=settings.attempt_lease_ms),
        retry=Retry(_MANY, base="1s", cap="1m"),
        max_crashes=_MANY,
        stuck_after=None,
        check=check_submission,
    )
    async def grade(
        skill: str, text: str | None = None, audio: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Never run here; its signature is what a submission holds."""
        raise NotImplementedError

    return Grading(settings, app, grade)
