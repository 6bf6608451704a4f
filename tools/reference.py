"""Write the reference pages that are generated from the code: `python tools/reference.py`.

With `--check` nothing is written, and a page that is not current is an error; a test runs this.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast import Holdfast, errors
from holdfast.engine.namespace import Namespace
from holdfast.jobs.codes import all_codes
from holdfast.jobs.moves import FINISHED, MOVES, Kind, State

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"
MADE = "<!-- Made by `python tools/reference.py`. Change the code it reads, not this page. -->"

#: When each verb of `MOVES` is used. A verb that is missing here is an error.
WHEN = {
    "enqueue": "a program enqueues a call of a task",
    "claim": "a worker gets a lease; `attempt` and `epoch` grow",
    "extend": "a heartbeat of the worker extends its leases",
    "complete": "the handler returned; its result is recorded",
    "fail": "the handler raised; the retry policy decides between another attempt and a dead letter",
    "release": "the worker shuts down, or the handler snoozes: the attempt is given back and does not count",
    "reclaim": "the lease expired because the worker was lost; the attempt counts",
    "time_out": "the deadline passed: code `TIMEOUT`",
    "reject": "the input was refused but is recorded (attempt 0, no dead letter)",
    "cancel": "a person or a program cancels; a running attempt is asked to stop",
    "retry": "a person retries, or a dead letter is redriven: a finished job begins a new generation, a waiting one is due now",
    "purge": "retention removed the result; the job stays complete with `expired_at`",
}

STATES = {
    State.QUEUED: "waiting for a worker; if `run_at` is in the future, it waits for that time first",
    State.PROCESSING: "a worker holds its lease",
    State.COMPLETE: "ended with a result",
    State.FAILED: "ended without a result; `error_code` says why",
    State.CANCELLED: "ended because a person or a program cancelled it",
}

#: Kinds with a number that are not recorded yet.
RESERVED = {Kind.breaker_opened, Kind.breaker_closed}


def states() -> str:
    """Return the page on states and moves."""
    return f"""# States and moves

{MADE}

A job is in one of {len(State)} states. "Scheduled", "waiting for a retry" and "stuck" are not states.
`run_at`, `last_failure` and `lease_expires_at` of a queued or processing job describe them.

| State | Meaning | Finished |
|---|---|---|
{_rows((f"`{state}`", STATES[state], "yes" if state in FINISHED else "") for state in State)}

```mermaid
stateDiagram-v2
{_diagram()}
```

Every change of a job is one of these moves, made in one transaction together with its event. The stores and the tests read
the same table, `holdfast.records.MOVES`.

| Verb | From | To | When |
|---|---|---|---|
{_rows((f"`{verb}`", _names(start) or "(new)", _names(end), WHEN[verb]) for verb, (start, end) in MOVES.items())}

## Events

These are the events of `app.events.list()`, in the order of their stored numbers:
{", ".join(f"`{kind.name}`" for kind in Kind if kind not in RESERVED)}.
"""


def _names(states: frozenset[State]) -> str:
    return " or ".join(f"`{state}`" for state in State if state in states)


def _diagram() -> str:
    arrows: dict[tuple[str, str], list[str]] = {}
    for verb, (start, end) in MOVES.items():
        for one in [str(state) for state in State if state in start] or ["[*]"]:
            for other in [str(state) for state in State if state in end]:
                arrows.setdefault((one, other), []).append(verb)
    lines = [f"    {one} --> {other}: {', '.join(verbs)}" for (one, other), verbs in arrows.items()]
    return "\n".join(lines)


def error_page() -> str:
    """Return the page on errors and codes."""
    tree = inspect.cleandoc(errors.__doc__ or "").partition("\n")[2].strip()
    return f"""# Errors and codes

{MADE}

## What Holdfast raises

```text
{tree}
```

Catch `HoldfastError` to catch all errors except the three that handlers raise. Import them all from `holdfast`.

## Codes

A failed attempt has a code. `transient`, `throttled` and `unknown` failures are retried while the task's policy allows it.
`permanent` failures are not. Users see the message; the technical detail is in the attempt.

`Fatal(code=…)` and `Retryable(code=…)` may use codes of your own. `app.error_code("GW_5XX", "The gateway is down.")` declares the
message that users see for a failure with that code and no message of its own: a job that fails fast (`fail_code`), `task.reject`
without a message, a rule that returns a code, or a code that an external worker reports.

| Code | Class | HTTP status | Message |
|---|---|---|---|
{_rows((f"`{code.name}`", str(code.error_class), str(code.status), code.message) for code in all_codes())}
"""


def _rows(cells: Iterable[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


def app_page() -> str:
    app = Holdfast("memory://")
    namespaces = {name: value for name, value in vars(app).items() if isinstance(value, Namespace)}
    return f"""# The app

{MADE}

`Holdfast` declares what there is and runs it. Its namespaces read and control jobs. `app.sync` has the same namespaces without `await`, for
code without an event loop. `help(Holdfast)` and your editor show arguments, results and exceptions in full.

| Member | What it does |
|---|---|
{_rows(_members(Holdfast, app="app"))}
{"".join(map(_namespace, namespaces, namespaces.values()))}"""


def _namespace(name: str, namespace: Namespace) -> str:
    about = (inspect.getdoc(type(namespace)) or "").partition("\n\n")[0].replace("\n", " ")
    return f"""
## `app.{name}`

{about}

| Verb | What it does |
|---|---|
{_rows(_members(type(namespace)))}
"""


def _members(owner: type, app: str = "") -> Iterable[tuple[str, str]]:
    for name, member in vars(owner).items():
        if name.startswith("_"):
            continue
        about = (inspect.getdoc(member) or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        called = "" if isinstance(member, property) else f"({_parameters(member)})"
        yield f"`{app and 'app.'}{name}{called}`", about


def _parameters(member: Callable[..., object]) -> str:
    """Return the names of the parameters as a call writes them; those behind `*` by keyword."""
    shown, by_name = [], False
    for parameter in list(inspect.signature(member).parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not by_name:
            by_name = True
            shown.append("*")
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        shown.append(star + parameter.name)
    return ", ".join(shown)


PAGE: dict[str, Callable[[], str]] = {"states.md": states, "errors.md": error_page, "app.md": app_page}


def main() -> None:
    for name, make in PAGE.items():
        write(PAGES / name, make(), command="python tools/reference.py")


def write(path: Path, text: str, *, command: str) -> None:
    """Write *text* to *path*. With `--check`, exit with an error when it differs instead."""
    if "--check" not in sys.argv:
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        sys.exit(f"{path.name} is not current; run: {command}")


if __name__ == "__main__":
    main()
