"""Secrets are planted wherever one can get in, and looked for wherever something comes out (E63)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from holdfast import Fatal, Holdfast, Retryable, StoreError
from holdfast import logging as logs
from holdfast.redaction import HIDDEN, redact_text
from tests.apps import SOON, Database, new_app, work

CANARY = "c4n4ry-0815-4711"
Capture = pytest.CaptureFixture[str]

#: As libraries write them into the texts of their exceptions.
SPOKEN = (
    f"cannot reach postgresql://me:{CANARY}@db:5432/shop",
    f"GET https://bank.example/pay?sig={CANARY}&amount=3 answered 500",
    f"refused: Authorization: Bearer {CANARY}",
    f"headers={{'X-Api-Key': '{CANARY}', 'Accept': '*'}}",
    f"Cookie: {CANARY}",
    f"login failed for password={CANARY}",
    f'{{"client_secret": "{CANARY}"}}',
    f"key sk-{CANARY}-{CANARY} is unknown",
)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything is said, as JSON."""
    monkeypatch.setenv("HOLDFAST_LOG", "json")
    monkeypatch.setenv("HOLDFAST_LOG_LEVEL", "debug")
    logs.configure()
    yield
    structlog.reset_defaults()
    logging.getLogger("holdfast").setLevel(logging.NOTSET)


async def test_no_secret_reaches_a_log_a_traceback_an_event_a_metric_or_a_row(
    db: Database, told: None, capsys: Capture
) -> None:  # E62 E63
    app = new_app(db.url)
    app.metrics  # noqa: B018 - counts from here on

    @app.task(retry=SOON, depends_on="bank")
    async def pay(card: str, words: str) -> None:
        raise RuntimeError(words)

    @app.task(retry=SOON)
    async def refuse(words: str) -> None:
        raise Fatal(words, code="NO_WAY") if len(words) % 2 else Retryable(words)

    @app.task(retry=SOON)
    async def wrap(words: str) -> None:
        try:
            raise ExceptionGroup(words, [OSError(words), KeyError(words)])
        except* OSError as error:
            raise ValueError(words) from error

    async with app:
        for words in SPOKEN:
            await pay.enqueue(CANARY, words)
            await refuse.enqueue(words)
            await wrap.enqueue(words)
        await work(app)
        events = await app.events.list(limit=10_000)
        metrics, _ = await app.metrics.text()
        rows = (await app.jobs.list(limit=100)).rows
        attempts = [attempt for row in rows for attempt in await app.jobs.attempts(row.id)]
        letters = await app.dead_letters.list(limit=100)
    assert len(rows) == len(letters) == 3 * len(SPOKEN)
    said = capsys.readouterr().err
    assert said.count('"event": "job.failed"') == 3 * len(SPOKEN)
    assert CANARY not in said
    assert CANARY not in json.dumps([event.meta for event in events])
    assert CANARY not in metrics.decode()
    assert CANARY not in str([attempt.failure for attempt in attempts])
    tracebacks = [attempt.traceback for attempt in attempts]
    assert all(tracebacks)
    assert CANARY not in str(tracebacks)
    assert sum("Sub-exception 2 of 2" in str(text) for text in tracebacks) >= len(SPOKEN)
    assert said.count(HIDDEN) > len(SPOKEN)  # the reasons are in the log, without what is secret
    assert CANARY not in str([(row.error_message, row.last_failure) for row in rows])
    assert CANARY not in str([(letter.message, letter.detail) for letter in letters])


async def test_the_log_has_the_reason_and_no_variable_of_the_handler(
    app: Holdfast, told: None, capsys: Capture
) -> None:  # E63
    @app.task(retry=SOON)
    async def parse(document: str) -> None:
        secret = document + CANARY
        raise ValueError(f"not a number, {len(secret)} characters")

    async with app:
        await parse.enqueue(CANARY)
        await work(app)
    said = capsys.readouterr().err
    assert CANARY not in said
    assert f'"reason": "ValueError: not a number, {2 * len(CANARY)} characters"' in said
    assert said.count('test_canaries.py\\", line') == 1  # where, once for all attempts


@pytest.mark.parametrize("where", ["user:{}@127.0.0.1:1/shop", "127.0.0.1:1/shop?password={}&user=me"])
async def test_the_password_of_a_database_that_is_away_is_not_told(
    where: str, told: None, capsys: Capture
) -> None:  # E63
    app = Holdfast("postgresql://" + where.format(CANARY))
    with pytest.raises(StoreError) as refused:
        await app.runtime.engine()
    assert CANARY not in str(refused.value)
    body, _ = await app.metrics.text()
    assert CANARY not in body.decode() + capsys.readouterr().err


async def test_every_line_about_an_attempt_has_the_facts_of_the_promise(
    app: Holdfast, told: None, capsys: Capture
) -> None:  # E63
    class Answered(Exception):
        status_code = 502

    tries = 0

    @app.task(retry=SOON, depends_on="gateway")
    async def convert() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Answered

    @app.task(retry=SOON)
    async def refuse() -> None:
        raise Fatal("no", code="NO_WAY")

    async with app:
        first, second = await convert.enqueue(), await refuse.enqueue()
        await work(app)
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")
    ]
    about = [
        line for line in lines if line["event"] in ("job.retry_scheduled", "job.failed", "job.completed")
    ]
    wanted = ("event", "job_id", "status", "attempt", "gateway_status", "error_code", "breaker")
    assert sorted((tuple(line[name] for name in wanted) for line in about), key=str) == sorted(
        [
            ("job.retry_scheduled", first.id, "queued", 1, 502, "HTTP_5XX", "closed"),
            ("job.retry_scheduled", first.id, "queued", 2, 502, "HTTP_5XX", "closed"),
            ("job.completed", first.id, "complete", 3, None, None, "closed"),
            ("job.failed", second.id, "failed", 1, None, "NO_WAY", None),
        ],
        key=str,
    )
    assert all(isinstance(line["duration_ms"], int) for line in about)


def test_an_application_with_logs_of_its_own_gets_no_secrets_either(
    caplog: pytest.LogCaptureFixture,
) -> None:  # E63
    from holdfast.logging import Log

    Log("holdfast.worker").warning("claim.retrying", reason=SPOKEN[0], headers={"Authorization": CANARY})
    assert "claim.retrying" in caplog.text
    assert CANARY not in caplog.text


@pytest.mark.parametrize("words", SPOKEN)
def test_these_are_hidden_and_the_rest_is_left(words: str) -> None:  # E63
    hidden = redact_text(words)
    assert CANARY not in hidden
    assert HIDDEN in hidden
    assert redact_text(hidden) == hidden


@pytest.mark.parametrize(
    "words",
    [
        "took 3 tokens from the bucket",
        "job 0198c5f0-7d2e-7a41-9c55-3f6a1b2c4d5e is failed already",
        "no task named 'convert'; known here: mail, sell",
        "https://bank.example/pay answered 500",
        "is it done? yes",
    ],
)
def test_ordinary_words_stay_as_they_are(words: str) -> None:  # E63
    assert redact_text(words) == words
