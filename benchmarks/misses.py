"""Why a target is missed: what a profile showed, and what would help. Told on the page only while it is missed."""

from __future__ import annotations

from benchmarks import report
from benchmarks.report import Results

#: By store and by what is measured, as the table of targets names it.
WHY = {
    ("postgres", "enqueue, one a call"): (
        "One call is one round trip and one fsync here as there; the statement writes three rows (job, place in line, event) "
        "into three tables where the floor writes one row, and the wake-up is a second round trip after the commit, so that no "
        "commit waits for another's. Fewer tables would help; they are what keeps a drain fast beside a long transaction."
    ),
    ("postgres", "enqueue, 20,000 in one call"): (
        "The same three rows a job. COPY into the two wide tables would help most."
    ),
    ("postgres", "enqueue, 100 callers"): (
        "The callers share one event loop with the driver: a call costs about 35 µs of Python, which is the ceiling here, not "
        "the store. One caller alone is quick on this disk, and the ratio is of the two."
    ),
    ("postgres", "latency, median"): (
        "The floor sends its NOTIFY inside the insert. Ours goes after the commit in a transaction of its own (+0.3 to 0.4 ms), "
        "because a NOTIFY inside makes all commits of a database wait for each other; and the claim is a larger statement."
    ),
    ("postgres", "drain, every job fails once"): (
        "Two attempts a job, each with a record of its own, an event and a judgement: about 150 µs of the worker and 95 of the "
        "server, where the floor sets a status. From run to run the cell lies between 0.33 and 0.48 here."
    ),
    ("postgres", "drain, deep store of future jobs"): (
        "Chance: five more rounds of this cell alone (`--scenarios b6 --peers \'\' --rounds 5`) came to 0.87, 0.77, 1.23, 1.06 and 0.99, "
        "and against the drains of the first table, measured minutes before, it is 1.13 and 1.27. The machine's own speed changes by a "
        "half from one minute to the next. A claim does not touch future jobs and is planned once; with them a job takes no more of "
        "the worker (35 and 29 µs against 39 and 40) or the server (29 and 25 against 34 and 32)."
    ),
    ("sqlite", "enqueue_sync, one a call"): (
        "Four pages go into the write-ahead log at a commit (job, its id's index, the line's index, event) where the floor has two; "
        "that and the four statements around them (begin, number of the event, job, event) cost twice the processor time of the "
        "floor's one, and about 25 µs of Python come on top: arguments bound and checked, an id, a spec, a handle."
    ),
    ("sqlite", "await enqueue, one a call"): (
        "As `enqueue_sync`, and two hops between the event loop's thread and the writer's, the second of which wakes the loop by a "
        "byte through a socket."
    ),
    ("sqlite", "drain"): (
        "Of about 35 µs a job 12 are SQL; most of the rest is one asyncio task for each job, its context and its settling, which "
        "the floor's loop does not have. Starting handlers eagerly (Python 3.12) would save about 8 µs where they do not wait."
    ),
    ("sqlite", "latency, median"): "As one enqueue; the job is then seen by a look at the file every few milliseconds, as by the floor.",
    ("sqlite", "drain, two workers"): (
        "SQLite has one writer. Two of our workers wait for its lock with claims and settlements that are each larger than the "
        "floor's; the second adds nothing. Holding the lock for shorter would need smaller groups, and more fsyncs."
    ),
    ("sqlite", "drain, every job fails once"): (
        "Two attempts a job. The one that raises takes about 56 µs of the event loop and 46 of the writer, where one that "
        "succeeds takes 20 and 26: it is classified and judged, its record is written and it goes back into line. The floor sets a status."
    ),
}  # fmt: skip


def explanations(results: Results) -> list[str]:
    told = []
    for store, name in (("postgres", "PostgreSQL"), ("sqlite", "SQLite")):
        for what, compared, reached, target, verdict in report.target_rows(results, store):  # type: ignore[arg-type]
            if verdict == "missed":
                why = WHY.get((store, what), "Not looked into yet.")
                told += [f"- **{name}, {what}** ({reached} {compared}; {target}): {why}".replace("  ", " ")]
    if not told:
        return []
    return ["## What is missed, and why", "", *told, ""]
