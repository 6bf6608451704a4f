"""`holdfast demo`: show what happens to three jobs, in a temporary database, in a few seconds."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.options import PLAIN, JsonOption
from holdfast.cli.views import job_view, print_json

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.jobs.job import JobRow

demo = typer.Typer(**(PLAIN | {"no_args_is_help": False}))


@demo.command()
def show(as_json: JsonOption = False) -> None:
    """Run one job that works, one that fails at first, and one that needs a person. The database is removed at the end."""
    from holdfast import logging as logs

    logs.configure(quiet=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        before, after = asyncio.run(_play(f"sqlite:///{Path(folder) / 'demo.db'}"))
    if as_json:
        print_json({"before": [job_view(row) for row in before], "after": [job_view(row) for row in after]})
        return
    print("Three jobs were enqueued, and a worker ran them:\n")
    _show(before)
    print(
        "\nThe second was tried again by its policy. The third is a dead letter: trying again would not have"
    )
    print("helped. Then its cause was fixed, and a person redrove it (`holdfast dead redrive`):\n")
    _show(after)
    print(
        "\nYour own: decorate a function with @app.task, enqueue calls of it, start `holdfast up module:app`."
    )


async def _play(url: str) -> tuple[list[JobRow], list[JobRow]]:
    from holdfast import Fatal, Holdfast, Retry, current_job

    app = Holdfast(url, poll="50ms")
    mended = False

    @app.task
    async def works() -> str:
        return "done"

    @app.task(retry=Retry(3, base="100ms"))
    async def fails_at_first() -> str:
        if current_job().attempt < 3:
            raise ConnectionError("the service is away")
        return "done"

    @app.task
    async def needs_a_person() -> str:
        if not mended:
            raise Fatal("there is no such file", code="NOT_FOUND")
        return "done"

    async def rows() -> list[JobRow]:
        return [await app.jobs.get(job.id) for job in jobs]

    async with app:
        jobs: list[Any] = [
            await works.enqueue(),
            await fails_at_first.enqueue(),
            await needs_a_person.enqueue(),
        ]
        await app.run_worker(until_idle=True)
        before, mended = await rows(), True
        await app.dead_letters.redrive(ids=jobs[2].id, by="demo")
        await app.run_worker(until_idle=True)
        return before, await rows()


def _show(rows: list[JobRow]) -> None:
    from holdfast.cli.tables import show_table

    show_table(
        ["task", "state", "attempts", "result", "error"],
        [(row.task, row.state, row.attempt, row.result, row.error_code) for row in rows],
        empty="",
    )
