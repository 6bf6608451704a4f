"""`holdfast outbox` and `holdfast relay`: manage outbox messages, and deliver them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.apps import run_until_stopped
from holdfast.cli.command import Cli, command
from holdfast.cli.options import PLAIN, AppArgument, LimitOption
from holdfast.cli.times import span
from holdfast.cli.views import view
from holdfast.errors import UsageError

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.outbox.model import Message

outbox = typer.Typer(help="List, replay, park and discard outbox messages.", **PLAIN)
relay = typer.Typer(**PLAIN)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The message's id; `outbox list` shows it.")]
TopicOption = Annotated[str | None, typer.Option("--topic", help="Only this topic.")]
AfterOption = Annotated[int | None, typer.Option("--after", help="Begin after the message with this number.")]
UntilIdleOption = Annotated[bool, typer.Option("--until-idle", help="End when no message waits.")]
#: How many characters of a body are shown.
SHOWN = 4_000


@relay.command()
def run_relay(app: AppArgument, until_idle: UntilIdleOption = False) -> int:
    """Deliver outbox messages until SIGTERM or SIGINT. A second signal stops at once and releases unfinished messages."""
    return run_until_stopped(
        app, lambda app: app.outbox.run_relay(until_idle=until_idle, handle_signals=True)
    )


def _view(message: Message) -> dict[str, Any]:
    return view(message) | {"body": _text(message.body), "headers": dict(message.headers)}


def _text(body: bytes) -> str:
    """Return *body* as text, or as hexadecimal digits if it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body.hex()


@command(outbox, "list")
def list_(
    cli: Cli,
    topic: TopicOption = None,
    state: Annotated[
        str | None, typer.Option("--state", help="Only these: waiting, published or parked.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only this key.")] = None,
    limit: LimitOption = 50,
    after: AfterOption = None,
) -> None:
    """List messages by number."""
    found = cli.ask(lambda app: app.outbox.list(topic=topic, state=state, key=key, after=after, limit=limit))
    following = found[-1].number if len(found) == limit else None
    cli.table(
        {"messages": [_view(message) for message in found], "next": following},
        ["number", "id", "topic", "key", "state", "tries", "created", "error"],
        (
            (m.number, m.id, m.topic, m.key, m.state, m.tries + m.unreached, m.created_at, m.error)
            for m in found
        ),
        empty="No messages.",
        more=None if following is None else str(following),
    )


@command(outbox)
def show(message_id: IdArgument, cli: Cli) -> None:
    """Show one message with its body."""
    found = cli.ask(lambda app: app.outbox.get(message_id))
    shown = _view(found)
    if not cli.as_json and len(shown["body"]) > SHOWN:
        shown["body"] = f"{shown['body'][:SHOWN]}… ({len(found.body):,} bytes)"
    cli.facts(shown)


@command(outbox)
def lags(cli: Cli) -> None:
    """Show the backlog of every topic with waiting or parked messages."""
    found = cli.ask(lambda app: app.outbox.lags())
    rows = [
        (lag.topic, lag.waiting, lag.parked, None if lag.oldest is None else lag.oldest.total_seconds())
        for lag in found
    ]
    names = ("topic", "waiting", "parked", "oldest_seconds")
    cli.table(
        {"topics": [dict(zip(names, row, strict=True)) for row in rows]},
        ["topic", "waiting", "parked", "oldest waits"],
        ((*row[:3], None if row[3] is None else span(row[3])) for row in rows),
        empty="Nothing waits.",
    )


@command(outbox)
def replay(
    *,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Ids of messages.")] = None,
    cli: Cli,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Replay a range of this topic instead.")
    ] = None,
    first: Annotated[int, typer.Option("--from", min=0, help="The first number.")] = 0,
    last: Annotated[int | None, typer.Option("--to", min=0, help="The last number.")] = None,
) -> None:
    """Deliver published and parked messages again. They keep their ids. Name some, or a range of a topic."""
    if (topic is None) == (not ids):
        raise UsageError("say which messages: ids, or --topic with --from and --to")

    async def move(app: Holdfast) -> int:
        if topic is not None:
            return await app.outbox.replay_many(topic, first=first, last=last)
        for message_id in ids or []:
            await app.outbox.replay(message_id)
        return len(ids or [])

    done = cli.ask(move)
    cli.say({"replayed": done}, f"{done:,} will be delivered once more")


@command(outbox)
def park(
    message_id: IdArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why; stored with the message.")],
    cli: Cli,
) -> None:
    """Set a waiting message aside until it is replayed or discarded."""

    async def move(app: Holdfast) -> Message:
        await app.outbox.park(message_id, reason=reason)
        return await app.outbox.get(message_id)

    found = cli.ask(move)
    cli.say(_view(found), f"{found.id} is parked: {found.error}")


@command(outbox)
def discard(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of parked messages.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; the event records it.")],
    cli: Cli,
) -> None:
    """Delete parked messages. They are never delivered."""

    async def move(app: Holdfast) -> int:
        for message_id in ids:
            await app.outbox.discard(message_id, reason=reason, by="cli")
        return len(ids)

    done = cli.ask(move)
    cli.say({"discarded": done}, f"{done:,} discarded")
