"""`holdfast webhooks`: create, list, test, replay and remove webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Cli, command
from holdfast.cli.options import PLAIN, current_user
from holdfast.cli.views import view

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.webhooks.model import Webhook

webhooks = typer.Typer(help="Create, test, replay, enable and remove webhooks.", **PLAIN)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The webhook's id; `webhooks list` shows it.")]
OwnerOption = Annotated[
    str | None, typer.Option("--owner", help="Send only events of this owner's jobs. Default: all jobs.")
]
NoteOption = Annotated[str, typer.Option("--description", help="A name for people.")]


def _view(webhook: Webhook) -> dict[str, Any]:
    """Return the fields of a webhook without its secrets, which are shown only when they are made."""
    return view(webhook, without=("seeds", "secrets"))


def _state(webhook: Webhook) -> str:
    if not webhook.is_enabled:
        return f"disabled: {webhook.disabled_reason}"
    return "failing" if webhook.failing_since else "inbound" if webhook.inbound else "enabled"


def _show_secret(cli: Cli, webhook: Webhook) -> None:
    cli.facts(_view(webhook) | {"secret": webhook.secrets[0]})
    if not cli.as_json:
        print("Keep the secret: it is not shown again. Receivers check signatures with it.")


@command(webhooks, "list")
def list_(cli: Cli) -> None:
    """List webhooks, oldest first."""
    found = cli.ask(lambda app: app.webhooks.list())
    cli.table(
        {"webhooks": [_view(webhook) for webhook in found]},
        ["id", "state", "owner", "events", "url", "description"],
        ((w.id, _state(w), w.owner, ", ".join(w.events), w.url, w.description) for w in found),
        empty="No webhooks; `holdfast webhooks create URL` makes one.",
    )


@command(webhooks)
def create(
    target: Annotated[str, typer.Argument(metavar="ADDRESS", help="The address to call: https://…")],
    cli: Cli,
    event: Annotated[
        list[str] | None, typer.Option("--event", help='A kind of event, or "*". Default: the ends of jobs.')
    ] = None,
    owner: OwnerOption = None,
    description: NoteOption = "",
) -> None:
    """Send events to an address from now on. Its secret is shown only now."""
    made = cli.ask(
        lambda app: app.webhooks.create(target, events=event or (), owner=owner, description=description)
    )
    _show_secret(cli, made)


@command(webhooks)
def inbound(
    cli: Cli,
    owner: OwnerOption = None,
    description: NoteOption = "",
) -> None:
    """Let another system request retries by signed messages. Its secret is shown only now."""
    made = cli.ask(lambda app: app.webhooks.create_inbound(owner=owner, description=description))
    _show_secret(cli, made)


@command(webhooks)
def show(webhook_id: IdArgument, cli: Cli) -> None:
    """Show one webhook."""
    cli.facts(_view(cli.ask(lambda app: app.webhooks.get(webhook_id))))


@command(webhooks)
def rotate(
    webhook_id: IdArgument,
    cli: Cli,
    keep_old: Annotated[
        bool, typer.Option("--keep-old/--drop-old", help="Whether the old secret stays valid for 24 hours.")
    ] = True,
) -> None:
    """Make a new secret. For 24 hours messages are signed with the old one too."""
    made = cli.ask(lambda app: app.webhooks.rotate_secret(webhook_id, keep_old=keep_old))
    _show_secret(cli, made)


@command(webhooks)
def retire(webhook_id: IdArgument, cli: Cli) -> None:
    """End a rotation: only the newest secret stays valid."""
    cli.facts(_view(cli.ask(lambda app: app.webhooks.retire_secret(webhook_id))))


@command(webhooks)
def enable(webhook_id: IdArgument, cli: Cli) -> None:
    """Enable a webhook again. It receives events from now on."""
    cli.facts(_view(cli.ask(lambda app: app.webhooks.enable(webhook_id))))


@command(webhooks)
def disable(webhook_id: IdArgument, cli: Cli) -> None:
    """Send no events to a webhook until it is enabled."""
    cli.facts(_view(cli.ask(lambda app: app.webhooks.disable(webhook_id, reason=f"by {current_user()}"))))


@command(webhooks)
def remove(webhook_id: IdArgument, cli: Cli) -> None:
    """Delete a webhook."""
    cli.ask(lambda app: app.webhooks.remove(webhook_id))
    cli.say({"id": webhook_id, "removed": True}, f"webhook {webhook_id} is removed")


@command(webhooks, "test")
def send_test(
    webhook_id: IdArgument,
    cli: Cli,
    timeout: Annotated[str, typer.Option("--timeout", metavar="DURATION", help="How long to wait.")] = "30s",
) -> None:
    """Send a test message, and print the answer. A worker must be running."""
    from holdfast.errors import HoldfastError
    from holdfast.webhooks.selection import QUEUE

    async def send(app: Holdfast) -> Any:
        await app.webhooks.get(webhook_id)
        if not any(worker.serves(QUEUE) for worker in await app.queues.workers()):
            raise HoldfastError(
                f"no worker serves the queue {QUEUE!r}, so nothing was sent; start one: holdfast worker MODULE:APP"
            )
        job_id = await app.webhooks.test(webhook_id)
        try:
            return await app.jobs.wait(job_id, timeout)
        except TimeoutError as error:
            raise HoldfastError(str(error)) from None

    row = cli.ask(send)
    status = (row.result or {}).get("status") if isinstance(row.result, dict) else None
    cli.say(view(row), f"it answered {status}" if status else f"it was not delivered: {row.error_message}")
    if not status and not cli.as_json:
        raise typer.Exit(1)


@command(webhooks)
def replay(
    webhook_id: IdArgument,
    cli: Cli,
    after: Annotated[int, typer.Option("--after", min=0, help="Begin after this event …")] = 0,
    before: Annotated[int | None, typer.Option("--before", min=0, help="… and end before this one.")] = None,
) -> None:
    """Send past events again. Workers do it in batches, as an operation."""
    begun = cli.ask(
        lambda app: app.webhooks.replay(webhook_id, after=after, before=before, by=current_user())
    )
    line = f"operation {begun.id} has begun; `holdfast operations show {begun.id}` shows its progress"
    cli.say(view(begun), line)
