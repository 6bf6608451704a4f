"""What commands do alike: open the database that their options name, and print what they found."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from holdfast.cli.apps import ask
from holdfast.cli.filters import FILTERS, read_filters
from holdfast.cli.options import AppOption, JsonOption, UrlOption
from holdfast.cli.views import print_json, say

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cli:
    """The options that nearly every command has: the app, the database, and whether it prints JSON."""

    app: str | None
    url: str | None
    as_json: bool

    def ask(self, verb: Callable[[Holdfast], Awaitable[T]]) -> T:
        """Open the database, which must exist already, call *verb* with the app, and close it. Return what *verb* returns."""
        return ask(self.app, self.url, verb)

    def say(self, shown: Any, line: str) -> None:
        """Print *shown* as JSON, or else one line. Control characters in the line are escaped."""
        print_json(shown) if self.as_json else say(line)

    def facts(self, shown: Mapping[str, Any]) -> None:
        """Print *shown* as JSON, or else one value a line."""
        if self.as_json:
            print_json(shown)
            return
        from holdfast.cli.tables import show_facts  # imports rich, which takes longer than most commands

        show_facts(shown)

    def table(
        self,
        shown: Any,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        empty: str = "",
        more: str | None = None,
        to_continue: str = "--after",
    ) -> None:
        """Print *shown* as JSON, or else a table.

        Args:
            shown: The value for JSON.
            columns: The titles of the columns.
            rows: The cells of the rows. They are read only if the table is printed.
            empty: What to print if there are no rows.
            more: The cursor to the next page, if there is one.
            to_continue: What to write before the cursor in the next call.
        """
        if self.as_json:
            print_json(shown)
            return
        from holdfast.cli.tables import show_table

        show_table(columns, rows, empty=empty)
        if more is not None:
            print(f"More: {to_continue} {quote(more)}")


def command(
    group: typer.Typer,
    name: str | None = None,
    *,
    filters: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    has_json: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds a function to *group* as a command with the options --app, --url and, last, --json.

    The function gets them as its parameter *cli*, the options that *filters* names as its parameter *where*, and those of
    *options*, which are types by name, as its parameter *given*.
    """

    def decorate(run: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(run)
        def started(
            *, app: str | None = None, url: str | None = None, as_json: bool = False, **values: Any
        ) -> Any:
            if filters:
                values["where"] = read_filters({name: values.pop(name) for name in filters})
            if options:
                values["given"] = {name: values.pop(name) for name in options}
            return run(cli=Cli(app, url, as_json), **values)

        added = {
            "cli": {"app": AppOption, "url": UrlOption},
            "where": {one: FILTERS[one] for one in filters},
            "given": options or {},
        }
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(run, eval_str=True).parameters.values():
            if parameter.name in added:
                parameters += [_option(one, kind) for one, kind in added[parameter.name].items()]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        if has_json:
            parameters.append(_option("as_json", JsonOption))
        started.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        group.command(name)(started)
        return started

    return decorate


def _option(name: str, annotation: Any) -> inspect.Parameter:
    default = False if name in ("as_json", "internal") else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def list_by_default(group: typer.Typer, run: Callable[..., Any]) -> None:
    """Call the command *run* if no command of *group* is named."""

    @group.callback(invoke_without_command=True)
    def overview(
        context: typer.Context, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
    ) -> None:
        if context.invoked_subcommand is None:
            run(app=app, url=url, as_json=as_json)
