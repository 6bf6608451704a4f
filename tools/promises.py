"""The promises of Holdfast, and which tests prove them.

    python tools/promises.py          writes docs/reference/promises.md
    python tools/promises.py E12 E13  prints the tests of these promises; `all` for every promise
    python tools/promises.py --check  fails if the page is not current, because a promise has lost or gained its tests

A mark is a comment that begins with numbers of promises: `# E12`, or `# E2a, E4: why`. It belongs to the test
(or the class) that contains it or follows it, else to the whole file. A mark whose number is not in the list
below is an error.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "promises.md"
COMMAND = "python tools/promises.py"

AREAS = {
    "E": "Engine",
    "C": "Converter",
    "P": "Reports",
    "G": "Grading",
    "S": "Screenshots",
}

PROMISES = dict(
    line.split(" ", 1)
    for line in """\
E1 States
E2 Moves
E2a Counting and generations
E3 Invariants
E3a The row
E4 Fencing
E5 Exactly one recorded end
E6 Ambiguous commits
E7 Time is the store's
E8 Attempts
E9 Attempts are not burnt
E10 Policy per task
E11 Backoffs
E12 Retry-After
E13 Classification
E14 Error taxonomy
E15 Deadlines and retries
E16 Retry windows
E17 Retry budget
E18 Quotas
E19 Plug-ins
E20 Breaker per dependency
E21 Breaker modes
E22 Recovery of a dependency
E23 Lane concurrency limit
E24 Holding is O(1)
E25 Priorities and fair queuing
E26 Limits
E27 Pause and resume
E28 Why a job is not running
E29 Cancellation
E30 Stuck jobs
E31 Graceful shutdown
E32 Dead letters
E33 Manual retry
E34 Deadlines
E35 Late results
E36 Dedupe
E37 Idempotency-Key
E38 Retention
E39 Schedules
E40 Durable steps
E41 Execution
E42 Progress, results, logs
E43 Transactional enqueue
E44 Outbox
E45 Dispatch through a broker
E46 Batch
E47 Typed
E48 Testing kit
E49 Framework fit
E50 SQLite
E51 PostgreSQL
E52 One contract suite
E53 Migrations
E54 Bloat
E55 Regions
E60 Events
E61 Stream
E62 Metrics
E63 Logs
E64 Traces
E65 Health
E66 HTTP API
E67 CLI
E68 Dashboard
E68a Statistics
E69 SDKs
E70 Fingerprints
E71 Historical classification
E72 Suggested policies
E73 Predictive probes
E74 Anomalies
E75 Simulator
E76 SLA policies
E80 Workflows
E81 Batch handlers
E82 External waits
E83 Payload encryption
E84 Namespaces
C1 Upload
C2 Job routes
C3 Codes
C4 Gateway answers
C5 A real gateway
C6 Atomic results
C7 Queue page
C8 Messages for people
C9 Retention
C10 Runbook
C11 Settings by environment
C12 Acceptance list
P1 Chain of durable steps
P2 Retry schedule
P3 Retriable errors
P4 Fatal errors
P5 Raw output kept
P6 Metrics
P7 Any compatible endpoint
P8 Decisions on record
P9 Manual requeue
G1 Submission and outbox in one transaction
G2 Relay
G3 Celery worker
G4 Dead letter queue
G5 Deadlines
G6 Callbacks
G7 Breaker
G8 Acceptance list
S1 Screenshots
S2 Retry route
S3 Credits
S4 Maintenance and intervals
S5 Admin routes
S6 Redis dispatch
S7 Metrics
S8 Audit trail
S9 Troubleshooting guide
S10 Policies per type
S11 Load tests""".splitlines()
)

_NUMBER = r"[ECPGS]\d{1,2}[a-z]?"
_MARK = re.compile(rf"#+\s*({_NUMBER}(?:(?:\s*[,;+&]\s*|\s+and\s+|\s+){_NUMBER})*)(?![\w.-])")


def marks(root: Path = ROOT) -> dict[str, list[str]]:
    """Return the tests with marks of each promise, by its number."""
    found: dict[str, set[str]] = {}
    for path in sorted([*root.glob("tests/**/*.py"), *root.glob("systems/*/tests/**/*.py")]):
        name = path.relative_to(root).as_posix()
        for number, test in marks_of(path.read_text(encoding="utf-8")):
            if number not in PROMISES:
                sys.exit(f"{name}: {number} is not a promise; the list is in tools/promises.py")
            found.setdefault(number, set()).add(f"{name}::{test}" if test else name)
    return {number: sorted(tests) for number, tests in found.items()}


def marks_of(source: str) -> Iterator[tuple[str, str]]:
    """Yield the number of each mark in *source*, and the test it belongs to, or "" for the whole file."""
    tests = list(_tests(ast.parse(source)))
    lines = source.splitlines()
    for token in tokenize.generate_tokens(iter(source.splitlines(keepends=True)).__next__):
        mark = _MARK.match(token.string) if token.type == tokenize.COMMENT else None
        if mark:
            test = _owner(token.start[0], tests, lines)
            yield from ((number, test) for number in re.findall(_NUMBER, mark[1]))


def _tests(tree: ast.AST, inside: str = "") -> Iterator[tuple[int, int, str]]:
    """Yield the first line (with decorators), the last line and the name of each test and each class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{inside}{node.name}"
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if isinstance(node, ast.ClassDef):
                yield first, node.end_lineno or first, name
                yield from _tests(node, f"{name}::")
            elif node.name.startswith("test"):
                yield first, node.end_lineno or first, name


def _owner(line: int, tests: list[tuple[int, int, str]], lines: list[str]) -> str:
    below = line
    while below < len(lines) and lines[below - 1].lstrip().startswith("#"):
        below += 1  # a mark above a test belongs to it, even with other comments in between
    around = [test for test in tests if test[0] <= below <= test[1]]
    return max(around, default=(0, 0, ""))[2]


def page() -> str:
    """Return the page: which promises have a test. The tests themselves are printed by `tests_of()`."""
    found = marks()
    parts = [
        "# Promises",
        f"<!-- Made by `{COMMAND}` from its list and the marks in the tests. Change those, not this page. -->",
        (
            "Each promise of Holdfast and of its four systems has a number. A test that proves a promise carries its number in a\n"
            f"comment, like `# E12`. This command lists the tests of a promise: `{COMMAND} E12`."
        ),
        f"{sum(number in found for number in PROMISES)} of {len(PROMISES)} have a test. A promise without one is not kept yet.",
    ]
    for letter, area in AREAS.items():
        rows = [
            f"| {number} | {title} | {'yes' if number in found else 'not yet'} |"
            for number, title in PROMISES.items()
            if number[0] == letter
        ]
        parts += [f"## {area}", "\n".join(["| Number | Promise | Tested |", "|---|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def tests_of(numbers: list[str]) -> str:
    """Return the promises with these numbers, each followed by its tests, one per line."""
    found = marks()
    if unknown := [number for number in numbers if number not in PROMISES]:
        sys.exit(f"{unknown[0]} is not a promise; {PAGE.relative_to(ROOT)} lists the numbers")
    return "\n".join(
        "\n  ".join([f"{number} {PROMISES[number]}", *found.get(number, ["no test yet"])])
        for number in numbers
    )


def main() -> None:
    match sys.argv[1:]:
        case []:
            PAGE.write_text(page(), encoding="utf-8")
            print(f"wrote {PAGE}")
        case ["--check"]:
            if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
                sys.exit(f"{PAGE.name} is not current; run: {COMMAND}")
        case ["all"]:
            print(tests_of(list(PROMISES)))
        case numbers:
            print(tests_of(numbers))


if __name__ == "__main__":
    main()
