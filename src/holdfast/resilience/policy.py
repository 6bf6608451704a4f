"""The retry policy of a task, and the decision what happens after a failed attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.errors import UsageError
from holdfast.jobs.codes import ErrorClass
from holdfast.jobs.verdict import Bury, Failure, RetryAfter, Verdict
from holdfast.resilience import backoff as curves
from holdfast.resilience.backoff import Backoff, Curve, JitterSpec
from holdfast.resilience.windows import Windows
from holdfast.values.duration import Duration
from holdfast.values.validation import a_function, any_span, by_name, optional_span, several, span, typed

#: The longest Retry-After that is honored, unless a policy sets another; a longer one costs one early call
#: (E12).
LONGEST_RETRY_AFTER = timedelta(hours=1)


def retry_after_bound(value: Duration) -> timedelta:
    """Return the longest Retry-After that a policy accepts: 1 second to 30 days."""
    return span("max_retry_after", value, timedelta(seconds=1), timedelta(days=30))


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """How often and when a task is retried.

    `Retry(max_attempts=3, base="5s", factor=2, jitter="5s")` waits 5 s + U(0, 5 s), then 10 s + U(0, 5 s).
    *backoff* sets another curve: `Retry(4, backoff=table(["30s", "2m", "8m"]), jitter="20%")`. *only* lists
    the exception types that are retried, *never* those that are not. *attempts_by_code* gives single error
    codes fewer attempts than *max_attempts*. *windows* says when retries may start. *max_retry_after* is the
    longest Retry-After of a service that is honored; a longer one is cut to it.
    """

    max_attempts: int
    backoff: Backoff
    max_elapsed: timedelta | None
    only: tuple[type[BaseException], ...]
    never: tuple[type[BaseException], ...]
    attempts_by_code: Mapping[str, int] = field(default_factory=dict)
    windows: Windows | None = None
    max_retry_after: timedelta = LONGEST_RETRY_AFTER

    def __init__(
        self,
        max_attempts: int = 5,
        *,
        base: Duration = "5s",
        factor: float = 2.0,
        jitter: JitterSpec = "equal",
        cap: Duration = "1h",
        backoff: Curve | Backoff | None = None,
        max_elapsed: Duration | None = None,
        only: Sequence[type[BaseException]] = (),
        never: Sequence[type[BaseException]] = (),
        attempts_by_code: Mapping[str, int] | None = None,
        windows: Windows | None = None,
        max_retry_after: Duration = LONGEST_RETRY_AFTER,
    ) -> None:
        if type(max_attempts) is not int or not 1 <= max_attempts <= 1000:
            raise UsageError(
                f"max_attempts is {max_attempts!r}; it counts all attempts, so 1 (no retry) to 1000"
            )
        by_code = by_name("attempts_by_code", attempts_by_code or {}, '{"IO_ERROR": 2}')
        for code, most in by_code.items():
            if type(most) is not int or not 1 <= most <= max_attempts:
                raise UsageError(
                    f"attempts_by_code[{code!r}] is {most!r}; it must be 1 to max_attempts ({max_attempts})"
                )
        if backoff is not None and not isinstance(backoff, Backoff):
            a_function("backoff", backoff, "a curve, e.g. table([…]) or fixed(…)")
        if windows is not None:
            typed("windows", windows, Windows, "a Windows(allow=[…], deny=[…])")
        set_ = object.__setattr__
        if not isinstance(backoff, Backoff):
            curve = backoff or curves.exponential(base, factor)
            backoff = Backoff(curve, curves.jitter_of(jitter), any_span("cap", cap))
        set_(self, "max_attempts", max_attempts)
        set_(self, "backoff", backoff)
        set_(self, "max_elapsed", optional_span("max_elapsed", max_elapsed))
        set_(self, "only", _error_types("only", only))
        set_(self, "never", _error_types("never", never))
        set_(self, "attempts_by_code", dict(by_code))
        set_(self, "windows", windows)
        set_(self, "max_retry_after", retry_after_bound(max_retry_after))

    def allows(self, error: BaseException) -> bool:
        """Return whether the policy allows a retry after an exception of this type."""
        return not isinstance(error, self.never) and (not self.only or isinstance(error, self.only))


def _error_types(name: str, given: object) -> tuple[type[BaseException], ...]:
    types = several(name, given, type, "exception types, e.g. [ValueError]")
    if wrong := [one for one in types if not issubclass(one, BaseException)]:
        raise UsageError(f"{name} has {wrong[0]!r:.60}; it is a list of exception types, e.g. [ValueError]")
    return types


#: The policies of the four systems and the converter's older schedule (E11).
CONVERTER = Retry(3, base="5s", factor=2, jitter="5s", attempts_by_code={"IO_ERROR": 2})
CONVERTER_OLD = Retry(4, backoff=curves.table(["5s", "15s", "45s"]), jitter="20%")
REPORTS = Retry(4, backoff=curves.table(["30s", "120s", "480s"]), jitter="20%")
GRADING = Retry(4, base="2s", factor=2, jitter="1s", cap="300s")
SCREENSHOTS = Retry(4, backoff=curves.table(["5s", "25s", "125s"]), jitter="none")
#: Presets by the names that `@app.task(retry=…)` and the key `preset` of a policy file take.
PRESETS: Mapping[str, Retry] = {
    "converter": CONVERTER,
    "converter-old": CONVERTER_OLD,
    "reports": REPORTS,
    "grading": GRADING,
    "screenshots": SCREENSHOTS,
}


def preset(name: object) -> Retry:
    """Return the preset *name*; raise `UsageError` with the known names if there is none."""
    if not isinstance(name, str) or name not in PRESETS:
        raise UsageError(f"there is no preset {name!r:.60}; there are: {', '.join(PRESETS)}")
    return PRESETS[name]


def judge_failure(
    failure: Failure,
    policy: Retry,
    *,
    attempt: int,
    max_attempts: int,
    chance: float,
    elapsed: timedelta = timedelta(),
    until_deadline: timedelta | None = None,
    previous: timedelta | None = None,
    now: datetime | None = None,
) -> Verdict:
    """Decide what happens to a job whose *attempt* (counted from 1) failed *elapsed* after it was queued.

    The verdict is `Bury` or `RetryAfter`. Raises `UsageError` if the policy has windows and *now* is not
    given.
    """
    if failure.error_class is ErrorClass.PERMANENT:
        return Bury(failure)
    if attempt >= min(max_attempts, policy.attempts_by_code.get(failure.code, max_attempts)):
        return Bury(failure)
    if failure.retry_after is None:
        delay = policy.backoff.delay(attempt, chance, previous)
    else:
        # A server's Retry-After is jittered only upwards: earlier would ignore it, all at the same time would
        # overload it. A task's own `Retryable(after=…)` has no status and is not cut, because the author
        # chose it (E12).
        asked = failure.retry_after
        if failure.gateway_status is not None:
            asked = min(asked, policy.max_retry_after)
        delay = asked + asked * (0.1 * chance)
    if policy.windows is not None:
        delay = _within_windows(
            delay, policy.windows, now, chance, policy.max_elapsed, elapsed, until_deadline
        )
    if policy.max_elapsed is not None and elapsed + delay > policy.max_elapsed:
        return Bury(failure)
    if until_deadline is not None and delay > until_deadline:
        return Bury(failure.with_code("TIMEOUT"))
    return RetryAfter(delay, failure)


def _within_windows(
    delay: timedelta,
    windows: Windows,
    now: datetime | None,
    chance: float,
    max_elapsed: timedelta | None,
    elapsed: timedelta,
    until_deadline: timedelta | None,
) -> timedelta:
    """Return *delay*, extended until the windows are open; the ramp ends before the retry is too late."""
    if now is None or now.tzinfo is None:
        raise UsageError("a policy with windows depends on the time of day; pass now=, an aware datetime")
    limits = [until_deadline, None if max_elapsed is None else max_elapsed - elapsed]
    latest = min((limit for limit in limits if limit is not None), default=None)
    return windows.retry_at(now + delay, chance, None if latest is None else now + latest) - now


def judge_crash(
    *,
    attempt: int,
    max_attempts: int,
    crashes: int,
    max_crashes: int,
    backoff: Backoff,
    chance: float,
    lost: Failure,
) -> Verdict:
    """Decide what happens to a job whose worker was lost; *crashes* includes this one (E2a)."""
    if attempt >= max_attempts or crashes >= max_crashes:
        return Bury(lost)
    delay = timedelta() if crashes <= 1 else backoff.delay(crashes - 1, chance)
    return RetryAfter(delay, lost)
