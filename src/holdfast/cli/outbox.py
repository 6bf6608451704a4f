"""`holdfast outbox` and `holdfast relay`: messages for others, and the process that brings them there."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.apps import ask, load_app, retry_until_available
from holdfast.cli.exit_codes import OK
from holdfast.cli.options import PLAIN, AppArgument, AppOption, JsonOption, LimitOption, UrlOption
from holdfast.cli.views import print_json, say
from holdfast.errors import UsageError

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.domain.outbox import Lag, Message

outbox = typer.Typer(help="Messages for others: look at them, replay, park and discard them.", **PLAIN)
relay = typer.Typer(**PLAIN)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Of the message, as `outbox list` shows it.")]
TopicOption = Annotated[str | None, typer.Option("--topic", help="Only of this topic.")]
AfterOption = Annotated[int | None, typer.Option("--after", help="From the one behind this number on.")]
UntilIdleOption = Annotated[bool, typer.Option("--until-idle", help="End when no message waits.")]
#: Of a body, in a table or in `show`.
SHOWN = 4_000


@relay.command()
def run_relay(app: AppArgument, until_idle: UntilIdleOption = False) -> int:
    """Bring messages to their targets until SIGTERM or SIGINT; a second one ends at once and gives back what is in hand."""
    from holdfast import logs
    from holdfast.cli.supervisor import die_with_parent
    from holdfast.signals import with_deadline

    die_with_parent()
    found = load_app(app)
    logs.configure(keep=True)

    async def run() -> None:
        async with retry_until_available(found):
            await found.run_relay(until_idle=until_idle, handle_signals=True)

    with with_deadline():
        asyncio.run(run())
    return OK


def _view(message: Message) -> dict[str, Any]:
    shown = {field.name: getattr(message, field.name) for field in fields(message)}
    return shown | {"body": _text(message.body), "headers": dict(message.headers)}


def _text(body: bytes) -> str:
    """As it can be read; what is no text, as hexadecimal digits."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body.hex()


@outbox.command("list")
def list_(
    app: AppOption = None,
    url: UrlOption = None,
    topic: TopicOption = None,
    state: Annotated[
        str | None, typer.Option("--state", help="Only these: waiting, published or parked.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only of this key.")] = None,
    limit: LimitOption = 50,
    after: AfterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Messages by number."""

    async def look(app: Holdfast) -> list[Message]:
        return await app.messages(topic=topic, state=state, key=key, after=after, limit=limit)

    found = ask(app, url, look)
    following = found[-1].number if len(found) == limit else None
    if as_json:
        print_json({"messages": [_view(message) for message in found], "next": following})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["number", "id", "topic", "key", "state", "tries", "created", "error"],
        [
            (m.number, m.id, m.topic, m.key, m.state, m.tries + m.unreached, m.created_at, m.error)
            for m in found
        ],
        empty="No messages.",
    )
    if following is not None:
        print(f"More: --after {following}")


@outbox.command()
def show(
    message_id: IdArgument, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """One message, with its body."""
    found = ask(app, url, lambda app: app.message(message_id))
    if as_json:
        print_json(_view(found))
        return
    from holdfast.cli.tables import show_facts

    told = _view(found)
    cut = f"… ({len(found.body):,} bytes)" if len(told["body"]) > SHOWN else ""
    show_facts(told | {"body": told["body"][:SHOWN] + cut})


@outbox.command()
def lags(app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """How every topic stands in which anything waits or is parked."""

    async def look(app: Holdfast) -> list[Lag]:
        return await app.message_lags()

    found = ask(app, url, look)
    rows = [
        (lag.topic, lag.waiting, lag.parked, None if lag.oldest is None else lag.oldest.total_seconds())
        for lag in found
    ]
    if as_json:
        names = ("topic", "waiting", "parked", "oldest_seconds")
        print_json({"topics": [dict(zip(names, row, strict=True)) for row in rows]})
        return
    from holdfast.cli.tables import show_table, span

    show_table(
        ["topic", "waiting", "parked", "oldest waits"],
        [(*row[:3], None if row[3] is None else span(row[3])) for row in rows],
        empty="Nothing waits.",
    )


@outbox.command()
def replay(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Ids of messages.")] = None,
    app: AppOption = None,
    url: UrlOption = None,
    topic: Annotated[str | None, typer.Option("--topic", help="A range of this topic instead.")] = None,
    first: Annotated[int, typer.Option("--from", min=0, help="Its first number.")] = 0,
    last: Annotated[int | None, typer.Option("--to", min=0, help="Its last number, included.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Deliver published and parked messages once more, under their ids: some, or a range of a topic."""
    if (topic is None) == (not ids):
        raise UsageError("say which messages: ids, or --topic with --from and --to")

    async def move(app: Holdfast) -> int:
        if topic is not None:
            return await app.replay_messages(topic, first=first, last=last)
        for message_id in ids or []:
            await app.replay_message(message_id)
        return len(ids or [])

    done = ask(app, url, move)
    print_json({"replayed": done}) if as_json else print(f"{done:,} will be delivered once more")


@outbox.command()
def park(
    message_id: IdArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the message.")],
    app: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a waiting message out of line until it is replayed."""

    async def move(app: Holdfast) -> Message:
        await app.park_message(message_id, reason=reason)
        return await app.message(message_id)

    found = ask(app, url, move)
    print_json(_view(found)) if as_json else say(f"{found.id} is parked: {found.error}")


@outbox.command()
def discard(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of parked messages.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; an event keeps it.")],
    app: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give parked messages up, for good: they are never delivered."""

    async def move(app: Holdfast) -> int:
        for message_id in ids:
            await app.discard_message(message_id, reason=reason, by="cli")
        return len(ids)

    done = ask(app, url, move)
    print_json({"discarded": done}) if as_json else print(f"{done:,} discarded")
