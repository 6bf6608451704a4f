"""`holdfast tasks`: what an app declares, with the policies in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.apps import load_app
from holdfast.cli.options import PLAIN, AppOption, JsonOption, needed
from holdfast.cli.views import print_json
from holdfast.errors import UsageError

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.tasks.task import Policy, Task

tasks = typer.Typer(**(PLAIN | {"no_args_is_help": False}))


@tasks.command()
def run_tasks(
    name: Annotated[
        str | None, typer.Argument(metavar="[TASK]", help="Show all options of this task.")
    ] = None,
    app: AppOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tasks of an app, or show one with its policy. Needs --app, and no database."""
    from holdfast.cli.tables import show_facts, show_table
    from holdfast.tasks.policy_file.in_force import plain

    found = load_app(needed(app, "its tasks"))
    if name is not None:
        shown = _view(found, find_task(found, name))
        if as_json:
            print_json(shown)
        else:
            policy = shown.pop("policy")
            show_facts(shown | policy)
        return
    if as_json:
        print_json({"tasks": [_view(found, task) for task in found.tasks.values()]})
        return
    show_table(
        ["task", "queue", "runs", "attempts", "timeout", "calls", "schedules", "arguments"],
        [
            (
                task.name,
                task.policy.queue,
                task.policy.execute,
                task.policy.retry.max_attempts,
                plain(task.policy.timeout),
                task.policy.depends_on,
                ", ".join(_schedules(found, task)),
                ", ".join(task.signature.names),
            )
            for task in found.tasks.values()
        ],
        empty="No tasks; import the modules that declare them.",
    )


def find_task(app: Holdfast, name: str) -> Task[Any, Any]:
    """Return a task of the app. Raises `UsageError`, with similar names, when there is none of this name."""
    from holdfast.values.suggest import suggest

    if name not in app.tasks:
        raise UsageError(f"no task {name[:60]!r}; {suggest(name, app.tasks)}")
    return app.tasks[name]


def _schedules(app: Holdfast, task: Task[Any, Any]) -> list[str]:
    declared = app.runtime.declared.schedules
    return [schedule.name for schedule in declared.values() if schedule.task == task.name]


def _view(app: Holdfast, task: Task[Any, Any]) -> dict[str, Any]:
    policy, declared = _policy(task.policy), _policy(task.declared)
    return {
        "name": task.name,
        "function": f"{task.function.__module__}.{task.function.__qualname__}",
        "arguments": list(task.signature.names),
        "required": task.signature.required,
        "schedules": _schedules(app, task),
        "from_policy_file": sorted(name for name in policy if policy[name] != declared.get(name)),
        "policy": policy,
    }


def _policy(policy: Policy) -> dict[str, Any]:
    from holdfast.tasks.policy_file.in_force import delays, plain

    shown: dict[str, Any] = plain(policy)
    shown["retry"] = {name: value for name, value in shown["retry"].items() if name != "backoff"}
    return shown | {"retry": shown["retry"] | {"delays": delays(policy.retry)}}
