"""Find a command by its name, run it, and return its exit code."""

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
    except BaseExceptionGroup as group:  # from a task group; of several errors the first is reported
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
    # Searching the installed packages takes as long as most commands need to start, so it comes last.
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
        if isinstance(
            stop.__context__, BrokenPipeError
        ):  # the reader has ended, as in `holdfast events | head`
            return OK
        raise
    except Exception as error:
        # Errors of the parser (typer's copy of click, or click itself) print themselves with the usage line.
        if not (hasattr(error, "show") and hasattr(error, "exit_code")):
            raise
        usage = StringIO()
        error.show(file=usage)
        print_error(usage.getvalue().rstrip())
        return int(error.exit_code)
    return answer if isinstance(answer, int) else OK


def complete(args: list[str]) -> int:
    """Print completions for the shell. Every command is imported for this."""
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
