"""`holdfast enqueue`: enqueue one call of a task, and optionally wait for its result."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.arguments import read_arguments
from holdfast.cli.command import Cli, command
from holdfast.cli.options import PLAIN, needed, text_option, words
from holdfast.cli.tasks import find_task
from holdfast.cli.views import print_json, say
from holdfast.errors import HoldfastError, UsageError
from holdfast.values.pairs import read_pairs

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.tasks.task import EnqueueOptions, Handle

enqueue = typer.Typer(**PLAIN)

#: Python refuses to read numbers of some thousand digits; no priority has that many.
_LONGEST_NUMBER = 20
#: The options of a job, by their names in `EnqueueOptions`.
OPTIONS: dict[str, Any] = {
    "owner": text_option("owner", "The job belongs to this owner."),
    "queue": text_option("queue", "Enqueue into this queue instead of the task's."),
    "priority": text_option("priority", "high, normal, low or a whole number."),
    "delay": text_option("delay", "Start it after this time, e.g. 10m.", "DURATION"),
    "run_at": text_option("run-at", "Start it at this time, e.g. 2026-02-03T14:00:00Z.", "TIME"),
    "deadline": text_option("deadline", "It must end within this time.", "DURATION"),
    "start_within": text_option("start-within", "It must start within this time.", "DURATION"),
    "max_attempts": Annotated[int | None, typer.Option("--max-attempts", help="Try it at most this often.")],
    "key": text_option("key", "Jobs of one key run one at a time."),
    "shard": text_option("shard", "The shard of the dependency that it calls."),
    "dedupe_key": text_option(
        "dedupe-key", "Return the job that was enqueued with this key before, if there is one."
    ),
    "dedupe_for": text_option("dedupe-for", "For how long that key counts.", "DURATION"),
    "tags": Annotated[list[str] | None, typer.Option("--tag", help="A tag of the job; may be repeated.")],
    "id": text_option("id", "The job's id, a UUID. A known id is not enqueued twice.", "UUID"),
}


@command(enqueue, options=OPTIONS)
def run_enqueue(
    *,
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="The task's name; `holdfast tasks` lists them.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE…]", help="Its arguments. A value is JSON, else text."),
    ] = None,
    cli: Cli,
    args: Annotated[
        str | None, typer.Option("--args", metavar="JSON", help="All arguments as one JSON object instead.")
    ] = None,
    given: dict[str, Any],
    wait: Annotated[
        str | None,
        typer.Option("--wait", metavar="DURATION", help="Wait this long for its result, and print it."),
    ] = None,
) -> None:
    """Enqueue a job: `holdfast enqueue send_mail to=ann@example.com --app shop.tasks:app`."""
    given |= {
        "priority": _number(given["priority"]),
        "run_at": _time(given["run_at"]),
        "tags": words(given["tags"]) or None,
    }
    options: EnqueueOptions = {name: value for name, value in given.items() if value is not None}  # type: ignore[assignment]
    if arguments and args is not None:
        raise UsageError("give the arguments as NAME=VALUE or by --args, not both")

    async def send(app: Holdfast) -> tuple[Handle[Any], Any]:
        found = find_task(app, task)
        call = read_pairs(arguments or (), found.signature.texts) if args is None else read_arguments(args)
        handle = await found.options(**options).enqueue(**call)
        return handle, None if wait is None else await _result(app, handle, wait)

    needed(cli.app, "its tasks")
    handle, result = cli.ask(send)
    if cli.as_json:
        shown = {"id": handle.id, "duplicate": handle.duplicate}
        print_json(shown if wait is None else shown | {"result": result})
    else:
        say(f"{handle.id} {'exists already: its dedupe key is taken' if handle.duplicate else 'is queued'}")
        if wait is not None:
            print_json(result)


async def _result(app: Holdfast, handle: Handle[Any], timeout: str) -> Any:
    try:
        return await app.jobs.result(handle.id, timeout, as_json=True)
    except TimeoutError as error:
        raise HoldfastError(str(error)) from None


def _number(text: str | None) -> int | str | None:
    if text and len(text) <= _LONGEST_NUMBER and text.isascii() and text.removeprefix("-").isdecimal():
        return int(text)
    return text


def _time(text: str | None) -> datetime | None:
    from datetime import UTC

    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--run-at is {text[:40]!r}; write a time, e.g. 2026-02-03T14:00:00Z") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
