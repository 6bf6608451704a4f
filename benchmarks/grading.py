"""`python -m benchmarks.grading`: test grading with a broker that is killed, or with many submissions.

    storm     submissions at a steady rate for two minutes, RabbitMQ killed (-9) ten seconds after each time it is ready
    crowd     10,000 submissions: 5 % of their messages sent twice, 2 % malformed messages, 1 % recordings that cannot be
              decoded, a provider that answers 429 for 30 seconds

All processes are real: PostgreSQL, RabbitMQ, API, relay, engine, callbacks and Celery workers. Printed at the
end: how the submissions ended, and whether any ended twice, was charged twice, or did not end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aio_pika

from devservices.postgres import Postgres
from devservices.rabbitmq import RabbitMq
from holdfast import Holdfast
from holdfast.celery import encode_task
from holdfast.records import Event
from systems.grading.callbacks.consumer import declare
from systems.grading.messages import TASK
from systems.grading.submissions import submit
from systems.grading.tasks import Grading
from systems.grading.topology import REQUESTS
from tests.systems.grading.stack import Stack

TEXT = "It rains, because it is autumn. However, I am glad."
NOISE = b"this is no recording"
#: Deadlines of hours, so that a slow machine does not time out jobs. A lost job still never ends.
LONG = {
    "SLA_WRITING_MS": "7200000",
    "SLA_SPEAKING_MS": "7200000",
    "REDISPATCH_AFTER_MS": "300000",
    "MAX_CRASHES": "50",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grading", description=__doc__)
    parser.add_argument("what", choices=["storm", "crowd"])
    parser.add_argument("--rate", type=int, default=200, help="storm: submissions a second")
    parser.add_argument("--seconds", type=int, default=120, help="storm: how long")
    parser.add_argument("--submissions", type=int, default=10_000, help="crowd: how many")
    parser.add_argument("--patience", type=int, default=1800, help="seconds until all must have ended")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server, broker = stack.enter_context(Postgres()), stack.enter_context(RabbitMq())
        url = server.create_database("grading")
        asyncio.run(Holdfast(url).migrate())
        grading = stack.enter_context(Stack(folder, broker.url(), url, **LONG))
        grading.start("celery:two")
        run = storm if options.what == "storm" else crowd
        started = time.monotonic()
        expected = asyncio.run(run(grading, broker, options))
        print(f"submitted {len(expected):,} in {time.monotonic() - started:.0f} s", flush=True)
        asyncio.run(_all_ended(grading.main(), len(expected), started + options.patience))
        print(f"all ended after {time.monotonic() - started:.0f} s", flush=True)
        return asyncio.run(_audit(grading, expected))


async def storm(stack: Stack, broker: RabbitMq, options: argparse.Namespace) -> dict[str, str]:
    """Submit while the broker is killed; return the expected state of each submission."""
    stop = threading.Event()
    killer = threading.Thread(target=_kill_again_and_again, args=(broker, stop))
    killer.start()
    expected: dict[str, str] = {}
    grading = stack.main()
    try:
        async with grading.app:
            started = time.monotonic()
            for second in range(options.seconds):
                rows = await asyncio.gather(
                    *(submit(grading, "writing", text=TEXT) for _ in range(options.rate))
                )
                expected |= dict.fromkeys((row.id for row in rows), "complete")
                await asyncio.sleep(max(0.0, started + second + 1 - time.monotonic()))
    finally:
        stop.set()
        killer.join()
    return expected


def _kill_again_and_again(broker: RabbitMq, stop: threading.Event) -> None:
    kills = 0
    while not stop.wait(10):
        broker.kill()
        broker.start()
        kills += 1
    print(f"the broker was killed {kills} times", flush=True)


async def crowd(stack: Stack, broker: RabbitMq, options: argparse.Namespace) -> dict[str, str]:
    """Submit all; return the expected state of each submission."""
    expected: dict[str, str] = {}
    grading, sent_twice = stack.main(), []
    stack.fault(status=429, retry_after=30, seconds=30)
    async with grading.app:
        for start in range(0, options.submissions, 100):
            numbers = range(start, min(start + 100, options.submissions))
            rows = await asyncio.gather(*(_submit(grading, number) for number in numbers))
            for number, row in zip(numbers, rows, strict=True):
                expected[row.id] = "failed" if _is_noise(number) else "complete"
                if number % 20 == 7:
                    sent_twice.append(row)
    connection = await aio_pika.connect(broker.url())
    async with connection:
        channel = await connection.channel()
        await declare(channel)
        for row in sent_twice:
            request = {"requestId": f"{row.id}.1", "submissionId": row.id}
            request |= {key: value for key, value in row.payload.items() if value is not None}
            task = encode_task(TASK, kwargs={"request": request}, task_id=f"{row.id}.1")
            await _send(channel, aio_pika.Message(task.body, headers=dict(task.headers)))
        for number in range(options.submissions // 50):
            body = json.dumps([[], {"request": {"requestId": f"no-form-{number}"}}, {}]).encode()
            headers: dict[str, Any] = {"task": TASK, "id": f"no-form-{number}", "lang": "py"}
            await _send(channel, aio_pika.Message(body, headers=headers))
    print(f"{len(sent_twice)} messages came twice, {options.submissions // 50} had no form", flush=True)
    return expected


async def _submit(grading: Grading, number: int) -> Any:
    if _is_noise(number):
        return await submit(grading, "speaking", audio=NOISE)
    return await submit(grading, "writing", text=TEXT)


def _is_noise(number: int) -> bool:
    return number % 100 == 42


async def _send(channel: Any, message: aio_pika.Message) -> None:
    message.content_type, message.content_encoding = "application/json", "utf-8"
    await channel.default_exchange.publish(message, routing_key=REQUESTS)


async def _all_ended(grading: Grading, total: int, until: float) -> None:
    async with grading.app as app:
        while (ended := await app.jobs.count(task="grade", state=["complete", "failed"])) < total:
            if time.monotonic() > until:
                raise SystemExit(
                    f"only {ended:,} of {total:,} have ended: the others are lost, or this machine is slow"
                )
            await asyncio.sleep(2)


async def _audit(stack: Stack, expected: dict[str, str]) -> int:
    """Print the outcome, and return 0 if it is as expected.

    Each submission must have ended once, in the expected state, and must be charged once if it was graded.
    """
    grading = stack.main()
    ends: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    states: dict[str, str] = {}
    async with grading.app as app:
        after: int = 0
        while page := await app.events.list(after=after, limit=1000):
            ends.update(event.job_id for event in page if _is_end(event))
            kinds.update(event.kind for event in page)
            after = page[-1].id
        for job_id in expected:
            states[job_id] = str((await app.jobs.get(job_id)).state)
    charges = stack.ledger.charges()
    wrong = [job_id for job_id, end in expected.items() if states[job_id] != end]
    not_once = [job_id for job_id in expected if ends[job_id] != 1]
    graded = {f"{job_id}.1" for job_id, state in states.items() if state == "complete"}
    unpaid = graded - charges.keys()
    calls = Counter(call["client_request_id"] for call in stack.provider.get("/calls").json()["calls"])
    print(
        f"ended     {dict(Counter(states.values()))}; not as expected {len(wrong)}, not exactly once {len(not_once)}"
    )
    print(f"charged   {len(charges):,} rows, unique by request; graded without a charge {len(unpaid)}")
    print(
        f"letters   {len(stack.dead_letters())} shown; more than one call for {sum(n > 1 for n in calls.values())} requests"
    )
    print(f"events    {', '.join(f'{kind} {number:,}' for kind, number in sorted(kinds.items()))}")
    return 1 if wrong or not_once or unpaid else 0


def _is_end(event: Event) -> bool:
    return event.kind in ("complete", "failed", "timed_out")


if __name__ == "__main__":
    sys.exit(main())
