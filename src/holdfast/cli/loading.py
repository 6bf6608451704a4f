"""Find a command by its name, run it, and turn whatever comes out into an exit code."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from io import StringIO
from typing import Any

import typer
from typer.main import get_command

from holdfast.cli import COMMANDS
from holdfast.cli.exit_codes import INTERRUPTED, OK, print_error, report_error
from holdfast.errors import HoldfastError, UsageError


def call(name: str, args: list[str]) -> int:
    try:
        return _run(_find(name), name, args)
    except KeyboardInterrupt:
        return INTERRUPTED
    except HoldfastError as error:
        return report_error(error)
    except BaseExceptionGroup as group:  # what leaves a task group; several of ours are told as the first
        ours, others = group.split(HoldfastError)
        if ours is None or others is not None:
            raise
        return report_error(_first(ours))


def _first(group: BaseExceptionGroup[HoldfastError]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _find(name: str) -> Any:
    if name in COMMANDS:
        module, _, attribute = COMMANDS[name][0].partition(":")
        return getattr(importlib.import_module(module), attribute)
    # Looking for those of others takes as long as most commands do until they begin.
    from difflib import get_close_matches

    from holdfast.cli.plugins import plugins

    added = plugins()
    if name in added:
        try:
            return added[name].load()
        except Exception as error:
            raise UsageError(
                f"the command {name} of {added[name].value} cannot be loaded: {error!r}"
            ) from error
    near = get_close_matches(name, [*COMMANDS, *added], 1)
    hint = f"did you mean {near[0]!r}?" if near else "`holdfast --help` lists what there is"
    raise UsageError(f"no command {name!r}; {hint}")


def _run(command: Any, name: str, args: list[str]) -> int:
    if isinstance(command, typer.Typer):
        return _run_typer(command, f"holdfast {name}", args)
    function: Callable[[list[str]], int | None] = command
    return function(args) or OK


def _run_typer(command: typer.Typer, program: str, args: list[str]) -> int:
    try:
        answer = get_command(command).main(args=args, prog_name=program, standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # the reader had enough: `holdfast events | head`
            return OK
        raise
    except Exception as error:
        # The parser's own errors (typer's vendored click, or click itself) print themselves with the usage line.
        if not (hasattr(error, "show") and hasattr(error, "exit_code")):
            raise
        said = StringIO()
        error.show(file=said)
        print_error(said.getvalue().rstrip())
        return int(error.exit_code)
    return answer if isinstance(answer, int) else OK


def complete(args: list[str]) -> int:
    """Shell completion needs to see every command at once."""
    from holdfast.cli.plugins import plugins

    whole = typer.Typer(rich_markup_mode=None, name="holdfast")
    for name in [*COMMANDS, *plugins()]:
        try:
            command = _find(name)
        except UsageError:
            continue  # a broken plug-in must not break the shell
        if not isinstance(command, typer.Typer):
            continue
        if len(command.registered_commands) == 1 and not command.registered_groups:
            [only] = command.registered_commands
            only.name = name
            whole.registered_commands.append(only)
        else:
            whole.add_typer(command, name=name)
    get_command(whole).main(args=args, prog_name="holdfast")
    return OK
