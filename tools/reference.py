"""Write the reference pages that are made from the code: `python tools/reference.py`.

With `--check` nothing is written, and a page that is not current is an error; a test calls it so.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast import errors
from holdfast.domain.codes import all_codes
from holdfast.domain.moves import FINISHED, MOVES, Kind, State

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"
MADE = "<!-- Made by `python tools/reference.py`. Change the code it reads, not this page. -->"

#: What each verb of `MOVES` is for. A verb without a word here is an error, not a gap in the page.
WHEN = {
    "enqueue": "someone wants work done",
    "claim": "a worker takes a lease; `attempt` and `epoch` grow",
    "extend": "the worker says that it lives, and keeps its leases",
    "complete": "the handler returned; its result is recorded",
    "fail": "the handler raised; the retry policy decides between another attempt and a dead letter",
    "release": "orderly shutdown, or a snooze: the attempt is given back and does not count",
    "reclaim": "the lease ran out because the worker was lost; the attempt counts",
    "time_out": "its deadline passed: code `TIMEOUT`",
    "reject": "the input was refused but is put on record (attempt 0, no dead letter)",
    "cancel": "a person or a program decided; a running attempt is told to stop",
    "retry": "a person decided, or a dead letter is redriven: a finished job begins a new generation, a waiting one is due now",
    "purge": "retention removed the result; the job stays complete with `expired_at`",
}

STATES = {
    State.QUEUED: "waiting for a worker; with `run_at` ahead of now it waits for that time first",
    State.PROCESSING: "a worker holds its lease",
    State.COMPLETE: "ended with a result",
    State.FAILED: "ended without one; `error_code` says why",
    State.CANCELLED: "ended because somebody said so",
}

#: Numbers that are taken but that nothing records yet.
RESERVED = {Kind.breaker_opened, Kind.breaker_closed}


def states() -> str:
    return f"""# States and moves

{MADE}

A job is in one of {len(State)} states. "Scheduled", "waiting for a retry" and "stuck" are not states: they are what
`run_at`, `last_failure` and `lease_expires_at` tell about a queued or processing job.

| State | Meaning | Finished |
|---|---|---|
{_rows((f"`{state}`", STATES[state], "yes" if state in FINISHED else "") for state in State)}

```mermaid
stateDiagram-v2
{_diagram()}
```

Every change of a job is one of these moves, made in one transaction together with its event. The table is the data
that the stores and the tests read: `holdfast.MOVES`.

| Verb | From | To | When |
|---|---|---|---|
{_rows((f"`{verb}`", _names(start) or "(new)", _names(end), WHEN[verb]) for verb, (start, end) in MOVES.items())}

## Events

What `app.events()` records, in the order of their stored numbers:
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
    tree = inspect.cleandoc(errors.__doc__ or "").partition("\n")[2].strip()
    return f"""# Errors and codes

{MADE}

## What Holdfast raises

```text
{tree}
```

Catch `HoldfastError` to catch everything but the three that handlers raise. All are imported from `holdfast`.

## Codes

A failed attempt has a code. `transient`, `throttled` and `unknown` failures are tried again while the task's policy
allows it; `permanent` ones are not. The message is what people see; technical detail is in the attempt.
`Fatal(code=…)` and `Retryable(code=…)` may use codes of your own. `app.error_code("GW_5XX", "The gateway is down.")` declares what
people see of a failure with that code that brings no words of its own: jobs that fail fast (`fail_code`), `app.reject` without a
message, a rule that answers a code, a code that an external worker reports.

| Code | Class | HTTP status | Message |
|---|---|---|---|
{_rows((f"`{code.name}`", str(code.error_class), str(code.status), code.message) for code in all_codes())}
"""


def _rows(cells: Iterable[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


PAGE: dict[str, Callable[[], str]] = {"states.md": states, "errors.md": error_page}


def main() -> None:
    for name, make in PAGE.items():
        write(PAGES / name, make(), command="python tools/reference.py")


def write(path: Path, text: str, *, command: str) -> None:
    if "--check" not in sys.argv:
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        sys.exit(f"{path.name} is not current; run: {command}")


if __name__ == "__main__":
    main()
