"""Which jobs, which dead letters: the options to choose them by, spelled once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from holdfast.cli.options import words

#: What was chosen, by the names that `app.jobs` and `app.dead_letters` know; only what was given.
Where = dict[str, Any]


def _some(name: str, text: str) -> Any:
    return Annotated[list[str] | None, typer.Option(f"--{name}", help=f"{text}; may be repeated.")]


def _one(name: str, text: str) -> Any:
    return Annotated[str | None, typer.Option(f"--{name}", help=text)]


_OPTIONS: dict[str, Any] = {
    "state": _some("state", "queued, processing, complete, failed or cancelled"),
    "task": _some("task", "Of this task"),
    "queue": _some("queue", "In this queue"),
    "code": _some("code", "That failed with this code"),
    "fingerprint": _one("fingerprint", "Of this cause; see `groups`."),
    "owner": _one("owner", "Of this owner."),
    "tag": _one("tag", "With this tag."),
    "key": _one("key", "With this key."),
    "error_code": _one("error-code", "Failed with this code."),
    "created_after": _one("created-after", "Created at this moment or later, e.g. 2026-02-03T14:00."),
    "internal": Annotated[bool, typer.Option("--internal", help="With the engine's own jobs.")],
    "created_before": _one("created-before", "Created before this moment."),
}


def filtered(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command these options in the place of its parameter *where*."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(**given: Any) -> Any:
            chosen = {name: given.pop(name) for name in names}
            where = {
                name: words(value) if isinstance(value, list) else value for name, value in chosen.items()
            }
            return command(where={name: value for name, value in where.items() if value}, **given)

        own = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in own.parameters.values():
            if parameter.name != "where":
                parameters.append(parameter)
                continue
            for name in names:
                added = parameter.replace(
                    name=name, annotation=_OPTIONS[name], default=False if name == "internal" else None
                )
                parameters.append(added)
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return decorate
