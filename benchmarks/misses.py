"""Why targets are missed, and what would help. A text is on the page only while its target is missed."""

from __future__ import annotations

from benchmarks import report
from benchmarks.report import Results

#: The texts, by store and by what is measured, as in the table of targets.
WHY = {
    ("postgres", "enqueue, one a call"): (
        "One call is one round trip and one fsync, as for the floor. The statement writes three rows (job, place in line, event) "
        "into three tables where the floor writes one row. The wake-up is a second round trip after the commit, so that no "
        "commit waits for another. Fewer tables would help, but they keep a drain fast beside a long transaction."
    ),
    ("postgres", "enqueue, 20,000 in one call"): (
        "The same three rows per job. COPY into the two wide tables would help most."
    ),
    ("postgres", "enqueue, 100 callers"): (
        "The callers share one event loop with the driver. A call costs about 35 µs of Python, which is the limit here, not "
        "the store. A single caller is fast on this disk, which lowers the ratio."
    ),
    ("postgres", "latency, median"): (
        "The floor sends its NOTIFY inside the insert. Holdfast sends it after the commit in a separate transaction (+0.3 to "
        "0.4 ms), because a NOTIFY inside makes all commits of a database wait for each other. The claim is also a larger statement."
    ),
    ("postgres", "drain, every job fails once"): (
        "Two attempts per job, each with a record, an event and a retry decision: about 150 µs of the worker and 95 of the "
        "server, where the floor sets a status. From run to run the figure is between 0.33 and 0.48 here."
    ),
    ("postgres", "drain, deep store of future jobs"): (
        "Chance: five more rounds of this measurement alone (`--scenarios b6 --peers \'\' --rounds 5`) gave 0.87, 0.77, 1.23, 1.06 and "
        "0.99, and against the drains of the first table, measured minutes before, it is 1.13 and 1.27. The machine's own speed "
        "changes by half from one minute to the next. A claim does not touch future jobs and is planned once. With them a job takes "
        "no more of the worker (35 and 29 µs against 39 and 40) or the server (29 and 25 against 34 and 32)."
    ),
    ("sqlite", "enqueue_sync, one a call"): (
        "A commit writes four pages into the write-ahead log (job, its id's index, the line's index, event), where the floor "
        "writes two. These pages and the four statements around them (begin, number of the event, job, event) cost twice the "
        "processor time of the floor's one statement. About 25 µs of Python are added: binding and checking arguments, an id, a "
        "spec, a handle."
    ),
    ("sqlite", "await enqueue, one a call"): (
        "As for `enqueue_sync`, plus two hops between the event loop's thread and the writer's thread. The second hop wakes the "
        "loop by a byte through a socket."
    ),
    ("sqlite", "drain"): (
        "Of about 35 µs per job, 12 are SQL. Most of the rest is one asyncio task for each job, its context and its settlement, "
        "which the floor's loop does not have. Starting handlers eagerly (Python 3.12) would save about 8 µs for handlers that do not wait."
    ),
    ("sqlite", "latency, median"): "As for one enqueue. The worker then sees the job by polling the file every few milliseconds, as the floor does.",
    ("sqlite", "drain, two workers"): (
        "SQLite has one writer. Two Holdfast workers wait for its lock with claims and settlements that are each larger than the "
        "floor's, so the second worker adds nothing. A shorter lock would need smaller groups, and more fsyncs."
    ),
    ("sqlite", "drain, every job fails once"): (
        "Two attempts per job. The attempt that raises takes about 56 µs of the event loop and 46 of the writer, where one that "
        "succeeds takes 20 and 26: its error is classified, the retry is decided, its record is written and the job is queued "
        "again. The floor sets a status."
    ),
}  # fmt: skip


def explanations(results: Results) -> list[str]:
    """Return the lines of the section on missed targets; none if all are met."""
    lines = []
    for store, name in (("postgres", "PostgreSQL"), ("sqlite", "SQLite")):
        for what, compared, reached, target, verdict in report.target_rows(results, store):  # type: ignore[arg-type]
            if verdict == "missed":
                why = WHY.get((store, what), "Not investigated yet.")
                lines += [f"- **{name}, {what}** ({reached} {compared}; {target}): {why}".replace("  ", " ")]
    if not lines:
        return []
    return ["## What is missed, and why", "", *lines, ""]
