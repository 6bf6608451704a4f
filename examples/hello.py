"""A first app: a task that fails at first, a task that needs the CPU, and a task that cannot succeed.

make run                        run a worker on holdfast.db, until Ctrl-C
python -m examples.hello        enqueue a few jobs, run them by a worker, and print how they end
"""

from __future__ import annotations

import asyncio

from holdfast import Fatal, Handle, Holdfast, JobFailed, Retry, current_job

app = Holdfast()  # sqlite:///holdfast.db, unless HOLDFAST_DATABASE_URL says otherwise


@app.task(retry=Retry(3, base="500ms", jitter="none"))
async def greet(name: str) -> str:
    """Fail twice, as a network may, and succeed in the third attempt."""
    attempt = current_job().attempt
    if attempt < 3:
        raise ConnectionError(f"the network blinked in attempt {attempt}")
    return f"Hello, {name}! It took {attempt} attempts."


@app.task(execute="process", timeout="1m")
def count_primes(below: int) -> int:
    """Count primes in a separate process, which blocks no other job and can be stopped."""
    sieve = bytearray([1]) * below
    sieve[:2] = b"\0\0"
    for number in range(2, int(below**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
    return sum(sieve)


@app.task
def send_invoice(to: str) -> None:
    """Raise `Fatal`, because no retry can help: the job becomes a dead letter."""
    if "@" not in to:
        raise Fatal(f"{to!r} is not an address", code="BAD_ADDRESS")


async def show(call: str, handle: Handle[object]) -> None:
    try:
        print(f"{call:24} → {await handle.result(timeout='30s')}", flush=True)
    except JobFailed as error:
        print(f"{call:24} → {error}", flush=True)


async def main() -> None:
    async with app:
        sent = {
            'greet("Ada")': await greet.enqueue("Ada"),
            "count_primes(1_000_000)": await count_primes.enqueue(1_000_000),
            'send_invoice("nowhere")': await send_invoice.enqueue("nowhere"),
        }
        worker = asyncio.create_task(app.run_worker())
        await asyncio.gather(*(show(call, handle) for call, handle in sent.items()))
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
