"""`holdfast webhooks`: who is told of what happens, and who may ask for retries by signed messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.apps import ask
from holdfast.cli.options import PLAIN, AppOption, JsonOption, UrlOption, current_user
from holdfast.cli.views import print_json, say, view

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.domain.webhook import Webhook

webhooks = typer.Typer(help="Webhooks: make, test, replay, enable and remove them.", **PLAIN)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Of the webhook, as `webhooks list` shows it.")]
OwnerOption = Annotated[str | None, typer.Option("--owner", help="Whose jobs it is about; else everybody's.")]
NoteOption = Annotated[str, typer.Option("--description", help="What people call it.")]


def _view(webhook: Webhook) -> dict[str, Any]:
    """All but the secrets: they are shown when they are made."""
    return {
        field.name: getattr(webhook, field.name)
        for field in fields(webhook)
        if field.name not in ("seeds", "secrets")
    }


def _state(webhook: Webhook) -> str:
    if not webhook.is_enabled:
        return f"disabled: {webhook.disabled_reason}"
    return "failing" if webhook.failing_since else "inbound" if webhook.inbound else "enabled"


def _show(webhook: Webhook, as_json: bool, *, secret: bool = False) -> None:
    told = _view(webhook) | ({"secret": webhook.secrets[0]} if secret else {})
    if as_json:
        print_json(told)
        return
    from holdfast.cli.tables import show_facts

    show_facts(told)
    if secret:
        print("Keep the secret: it is not shown again. Receivers check signatures with it.")


def _one(
    app: str | None, url: str | None, as_json: bool, verb: Callable[[Holdfast], Awaitable[Webhook]]
) -> None:
    _show(ask(app, url, verb), as_json)


@webhooks.command("list")
def list_(app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Webhooks, oldest first."""
    found = ask(app, url, lambda app: app.webhooks())
    if as_json:
        print_json({"webhooks": [_view(webhook) for webhook in found]})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["id", "state", "owner", "events", "url", "description"],
        [(w.id, _state(w), w.owner, ", ".join(w.events), w.url, w.description) for w in found],
        empty="No webhooks; `holdfast webhooks create URL` makes one.",
    )


@webhooks.command()
def create(
    target: Annotated[str, typer.Argument(metavar="ADDRESS", help="Who is told: https://…")],
    app: AppOption = None,
    url: UrlOption = None,
    event: Annotated[
        list[str] | None, typer.Option("--event", help='A kind of event, or "*"; else the ends of jobs.')
    ] = None,
    owner: OwnerOption = None,
    description: NoteOption = "",
    as_json: JsonOption = False,
) -> None:
    """Tell an address of what happens from now on. Its secret is shown now and never again."""
    made = ask(
        app,
        url,
        lambda app: app.create_webhook(target, events=event or (), owner=owner, description=description),
    )
    _show(made, as_json, secret=True)


@webhooks.command()
def inbound(
    app: AppOption = None,
    url: UrlOption = None,
    owner: OwnerOption = None,
    description: NoteOption = "",
    as_json: JsonOption = False,
) -> None:
    """Let others ask for retries by signed messages. Its secret is shown now and never again."""
    made = ask(app, url, lambda app: app.create_inbound_webhook(owner=owner, description=description))
    _show(made, as_json, secret=True)


@webhooks.command()
def show(
    webhook_id: IdArgument, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """One webhook."""
    _one(app, url, as_json, lambda app: app.webhook(webhook_id))


@webhooks.command()
def rotate(
    webhook_id: IdArgument,
    app: AppOption = None,
    url: UrlOption = None,
    keep_old: Annotated[
        bool, typer.Option("--keep-old/--drop-old", help="Whether the old secret stays valid for 24 hours.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Make a new secret. For 24 hours messages are signed with the old one too."""
    made = ask(app, url, lambda app: app.rotate_webhook_secret(webhook_id, keep_old=keep_old))
    _show(made, as_json, secret=True)


@webhooks.command()
def retire(
    webhook_id: IdArgument, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """End a rotation: only the newest secret stays valid."""
    _one(app, url, as_json, lambda app: app.retire_webhook_secret(webhook_id))


@webhooks.command()
def enable(
    webhook_id: IdArgument, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Begin anew after it was disabled: from now on."""
    _one(app, url, as_json, lambda app: app.enable_webhook(webhook_id))


@webhooks.command()
def disable(
    webhook_id: IdArgument, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Send it nothing until it is enabled."""
    _one(app, url, as_json, lambda app: app.disable_webhook(webhook_id, reason=f"by {current_user()}"))


@webhooks.command()
def remove(
    webhook_id: IdArgument, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Send it nothing more."""
    ask(app, url, lambda app: app.remove_webhook(webhook_id))
    if as_json:
        print_json({"id": webhook_id, "removed": True})
    else:
        say(f"webhook {webhook_id} is removed")


@webhooks.command("test")
def send_test(
    webhook_id: IdArgument,
    app: AppOption = None,
    url: UrlOption = None,
    timeout: Annotated[str, typer.Option("--timeout", metavar="DURATION", help="How long to wait.")] = "30s",
    as_json: JsonOption = False,
) -> None:
    """Send it a message about nothing, and say what it answered. A worker must be running."""
    from holdfast.errors import HoldfastError
    from holdfast.webhooks.selection import QUEUE

    async def send(app: Holdfast) -> Any:
        await app.webhook(webhook_id)
        if not any(worker.serves(QUEUE) for worker in await app.workers()):
            raise HoldfastError(
                f"no worker serves the queue {QUEUE!r}, so nothing was sent; start one: holdfast worker MODULE:APP"
            )
        job_id = await app.test_webhook(webhook_id)
        engine = await app.engine()
        try:
            return await engine.wait(job_id, timeout)
        except TimeoutError as error:
            raise HoldfastError(str(error)) from None

    row = ask(app, url, send)
    if as_json:
        print_json(view(row))
        return
    status = (row.result or {}).get("status") if isinstance(row.result, dict) else None
    say(f"it answered {status}" if status else f"it was not delivered: {row.error_message}")
    if not status:
        raise typer.Exit(1)


@webhooks.command()
def replay(
    webhook_id: IdArgument,
    app: AppOption = None,
    url: UrlOption = None,
    after: Annotated[int, typer.Option("--after", min=0, help="Behind this event …")] = 0,
    before: Annotated[int | None, typer.Option("--before", min=0, help="… and before this one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Begin to send events again. Workers do it in batches, as an operation."""
    begun = ask(
        app, url, lambda app: app.replay_webhook(webhook_id, after=after, before=before, by=current_user())
    )
    if as_json:
        print_json(view(begun))
    else:
        print(f"operation {begun.id} has begun; `holdfast operations show {begun.id}` says how far it is")
