"""Plant bugs in a copy of the source, and print which net of tests catches each: `make mutants`.

A net that is green proves nothing until it has been red. First all nets must pass on the copy without a bug.
Then a bug that no net catches is an error. Arguments choose bugs by words in their names: `python
tools/mutants.py fence notify`. With `--record FILE` the net that caught each bug is written to a file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("src", "tests", "tools", "devservices", "pyproject.toml")
SECONDS = 600  #: the timeout of a net; a bug that makes a net hang counts as caught

PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
#: The nets, quickest first: the command of each, and the files whose bugs it can catch.
NETS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "group writes": (
        (*PYTEST, "tests/engine/test_coalesce.py", "tests/stores/sqlite/test_writer.py"),
        ("engine/coalesce", "stores/sqlite/writer"),
    ),
    "exhaustive": (
        (*PYTEST, "tests/exhaustive", "-k", "no_order and not three"),
        ("stores/memory", "jobs", "resilience", "engine"),
    ),
    "simulation": (
        ("-m", "tests.simulation", "0", "60"),
        ("stores/memory", "jobs", "resilience", "engine", "worker"),
    ),
    "stories told by hand": ((*PYTEST, "tests/simulation/test_stories.py"), ("worker",)),
    "simulation on sqlite": (("-m", "tests.simulation", "--store", "sqlite", "0", "30"), ("stores/sqlite",)),
    "stateful": (
        (*PYTEST, "tests/stateful/test_model.py", "-k", "memory"),
        ("stores/memory", "jobs", "resilience"),
    ),
    "stateful on sqlite": ((*PYTEST, "tests/stateful/test_model.py", "-k", "sqlite"), ("stores/sqlite",)),
    "contract": (
        (
            *PYTEST,
            *(f"tests/contract/test_{name}.py" for name in ("leases", "life", "hooks")),
            "-k",
            "not postgres",
        ),
        ("stores/memory", "stores/sqlite"),
    ),
    "contract on postgres": (
        (*PYTEST, *(f"tests/contract/test_{name}.py" for name in ("leases", "life")), "-k", "[postgres]"),
        ("stores/postgres",),
    ),
    "interleavings": (
        (*PYTEST, "tests/interleavings", "-k", "running or failed or unborn or late_commits"),
        ("stores/postgres",),
    ),
}


class Mutant(NamedTuple):
    """A bug: *new* replaces *old*, which must be in the file exactly once."""

    name: str
    file: str
    old: str
    new: str


_MEMORY, _SQLITE, _POSTGRES = "stores/memory", "stores/sqlite", "stores/postgres"
MUTANTS = (
    Mutant(
        "fence dropped",
        f"{_MEMORY}/tables.py",
        "return self.live is not None and self.live.epoch == lease.epoch",
        "return self.live is not None",
    ),
    Mutant(
        "reclaim without guard",
        f"{_MEMORY}/recovery.py",
        "if stuck or (lost if crashed else overran and not lost):",
        "if True:",
    ),
    Mutant("attempt not counted", f"{_MEMORY}/intake.py", "job.attempt + 1\n", "max(job.attempt, 1)\n"),
    Mutant("release burns an attempt", f"{_MEMORY}/outcomes.py", "job.attempt -= 1", "job.attempt -= 0"),
    Mutant(
        "cancel forgets the attempt",
        f"{_MEMORY}/manual.py",
        'end_attempt(tables, job, "cancelled")',
        "job.live = None",
    ),
    Mutant(
        "retry of a complete job",
        f"{_MEMORY}/manual.py",
        'if not allows("retry", job.state):',
        "if False:",
    ),
    Mutant(
        "late result applied",
        f"{_MEMORY}/outcomes.py",
        "if job.deadline_at is not None and tables.clock.now() > job.deadline_at:\n        time_out_one",
        "if False:\n        time_out_one",
    ),
    Mutant("late result told twice", f"{_MEMORY}/outcomes.py", "if lease.epoch not in job.late:", "if True:"),
    Mutant(
        "dead session comes back",
        f"{_MEMORY}/store.py",
        "lives = self._tables.is_live(session)",
        "lives = session.id in self._tables.sessions",
    ),
    Mutant(
        "one key runs twice",
        f"{_MEMORY}/intake.py",
        "if job.spec.key is not None and running[job.spec.key] >= job.spec.key_slots:",
        "if False:",
    ),
    Mutant(
        "stale holder records a step",
        f"{_MEMORY}/outcomes.py",
        "_current(tables, lease).steps[name] = result",
        "tables.jobs[lease.job_id].steps[name] = result",
    ),
    Mutant(
        "crashes without end",
        "resilience/policy.py",
        "if attempt >= max_attempts or crashes >= max_crashes:",
        "if crashes > 100:",
    ),
    Mutant(
        "notify trusted",
        "worker/claiming.py",
        "self._source.wait_for_work(lanes, poll)",
        "self._source.wait_for_work(lanes, 1e9)",
    ),
    Mutant(
        "settlement sent once",
        "worker/settlements.py",
        "                if self._abandoned:\n                    return log",
        "                if True:\n                    return log",
    ),
    Mutant(
        "lost claim forgotten",
        "worker/claiming.py",
        "        self.answer_lost_at = self._engine.clock.monotonic()",
        "        pass",
    ),
    Mutant(
        "doubt ends with a late look",
        "worker/lease_reconciler.py",
        "            self._give_back_unknown(held)\n",
        "            self._give_back_unknown(held)\n            self._claimer.answer_lost_at = float('-inf')\n",
    ),
    Mutant("trial given back while it ends", "worker/lease_reconciler.py", " | self._running.ending", ""),
    Mutant(
        "slow claim given back",
        "worker/lease_reconciler.py",
        "if all(claim > self._unknown_since[lease] for claim in self._claimer.unanswered):",
        "if True:",
    ),
    Mutant(
        "half a claim forgotten",
        "worker/claiming.py",
        "            self._answer_lost()  # one group of lanes may have given jobs before another was refused\n",
        "",
    ),
    Mutant("fence dropped in sqlite", f"{_SQLITE}/sql/complete.sql", " AND job.epoch = s.value ->> 1", ""),
    Mutant(
        "release burns an attempt in sqlite",
        f"{_SQLITE}/sql/requeue.sql",
        "attempt = attempt - :back",
        "attempt = attempt",
    ),
    Mutant(
        "reclaim without guard in sqlite",
        f"{_SQLITE}/recovery.py",
        "if stuck or overran.get(r.lease) is (not r.crashed)}",
        "if stuck or True}",
    ),
    Mutant(
        "event outside the transaction",
        f"{_SQLITE}/move.py",
        "        row = (seq, self.now, int(kind), to_json(moves), facts)",
        '        self.connection.execute("COMMIT")\n        self.connection.execute("BEGIN IMMEDIATE")\n'
        "        row = (seq, self.now, int(kind), to_json(moves), facts)",
    ),
    Mutant(
        "attempt unknown in the event",
        f"{_SQLITE}/outcomes.py",
        "s.attempt or _attempt_of(move, s.lease)",
        "s.attempt",
    ),
    Mutant(
        "fence dropped in postgres",
        f"{_POSTGRES}/sql/complete.sql",
        "job_id = ANY ($1::uuid[]) AND epoch = ANY ($2::bigint[])",
        "job_id = ANY ($1::uuid[])",
    ),
    Mutant(
        "cursor without rescan",
        f"{_POSTGRES}/claims.py",
        "        for lane in lanes:\n            self._from.pop",
        "        for lane in ():\n            self._from.pop",
    ),
    Mutant(
        "reclaim without guard in postgres",
        f"{_POSTGRES}/recovery.py",
        "if stuck or overran.get(r.lease) is (not r.crashed)}",
        "if stuck or True}",
    ),
    Mutant(
        "feed passes by an open transaction",
        f"{_POSTGRES}/sql/feed.sql",
        " AND e.seq < ((pg_snapshot_xmin(pg_current_snapshot())::text::bigint + $3::bigint) << 20)",
        " AND $3::bigint IS NOT NULL",
    ),
    Mutant(
        "group answered before its write",
        "engine/coalesce.py",
        "        try:\n            outs = await self._write([item for item, _ in batch])",
        "        for _, answer in batch:\n            answer.set_result(None)\n"
        "        try:\n            outs = await self._write([item for item, _ in batch])",
    ),
    Mutant(
        "lone caller answered before its write",
        "engine/coalesce.py",
        "            [out] = await self._write([item])\n            return out",
        "            asyncio.ensure_future(self._write([item]))\n            return None",
    ),
    Mutant(
        "group answered before its commit in sqlite",
        f"{_SQLITE}/writer.py",
        "            self._checkpoints.commit()\n        except BaseException as error:",
        "            _answer(batch)\n            self._checkpoints.commit()\n        except BaseException as error:",
    ),
    Mutant(
        "second event of a repeated settlement in sqlite",
        f"{_SQLITE}/outcomes.py",
        "WHERE uid IN (SELECT value FROM json_each(?)) AND settle_event = ?",
        "WHERE uid IN (SELECT value FROM json_each(?)) AND ? > 0",
    ),
    Mutant(
        "late at the very deadline in sqlite",
        f"{_SQLITE}/sql/complete.sql",
        "job.deadline_at >= :now",
        "job.deadline_at > :now",
    ),
    Mutant(
        "retry due by the process's clock in postgres",
        f"{_POSTGRES}/store.py",
        "            return await outcomes.settle(move, settlements)\n",
        '            ahead = self._clock.now() - await move.connection.fetchval("SELECT holdfast.clock()")\n'
        "            return await outcomes.settle(move, [\n"
        "                s._replace(verdict=type(s.verdict)(s.verdict.delay + ahead, s.verdict.failure))\n"
        '                if getattr(s.verdict, "failure", None) and getattr(s.verdict, "delay", None) else s for s in settlements\n'
        "            ])\n",
    ),
    Mutant(
        "fence dropped in requeue of postgres",
        f"{_POSTGRES}/sql/requeue.sql",
        "     WHERE job_id = ANY ($1::uuid[]) AND epoch = ANY ($2::bigint[])\n",
        "     WHERE job_id = ANY ($1::uuid[]) AND $2::bigint[] IS NOT NULL\n",
    ),
    Mutant(
        "dedupe looks before it inserts in postgres",
        f"{_POSTGRES}/enqueue_plan.py",
        "VALUES ($1::bytea, $2::uuid) ON CONFLICT (digest) DO NOTHING RETURNING digest",
        "SELECT $1::bytea, $2::uuid WHERE NOT EXISTS"
        " (SELECT FROM holdfast.dedupe WHERE digest = $1::bytea) RETURNING digest",
    ),
    Mutant(
        "dedupe without a lock in postgres",
        f"{_POSTGRES}/enqueue_plan.py",
        "WHERE digest = $1::bytea FOR UPDATE",
        "WHERE digest = $1::bytea",
    ),
)


def main(chosen: list[str]) -> int:
    words, record = list(chosen), None
    if "--record" in words:
        index = words.index("--record")
        if len(words) == index + 1:
            return _end("--record needs a file")
        record = Path(words.pop(index + 1))
        words.remove("--record")
    mutants = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    if not mutants:
        return _end(_unknown(" ".join(words)))
    with copied() as copy:
        for net in NETS:
            if any(_covers(net, mutant) for mutant in mutants) and not _passes(net, copy):
                return _end(f"{net} fails without any bug; fix that first")
        caught = {mutant.name: _caught(mutant, copy) for mutant in mutants}
    survivors = [name for name, net in caught.items() if net is None]
    if record is not None:
        command = " ".join(["python tools/mutants.py", *chosen])
        record.write_text(json.dumps({"command": command, "caught": caught}, indent=1) + "\n")
    if survivors:
        return _end(f"no net caught: {', '.join(survivors)}")
    sys.stdout.write(f"all {len(mutants)} caught\n")
    return 0


@contextmanager
def copied() -> Iterator[Path]:
    """Yield a temporary copy of the source and its tests."""
    with TemporaryDirectory() as folder:
        for name in COPIED:
            _copy(ROOT / name, Path(folder) / name)
        yield Path(folder)


@contextmanager
def planted(name: str) -> Iterator[Path]:
    """Yield a temporary copy with the bug *name*. Exits when there is no such bug."""
    mutant = next((mutant for mutant in MUTANTS if mutant.name == name), None)
    if mutant is None:
        raise SystemExit(_unknown(name))
    with copied() as copy:
        _plant(mutant, copy)
        yield copy


def _plant(mutant: Mutant, copy: Path) -> tuple[Path, str]:
    """Plant the bug in *copy*, and return its file and the file's text before."""
    file = copy / "src" / "holdfast" / mutant.file
    before = file.read_text(encoding="utf-8")
    if before.count(mutant.old) != 1:
        raise SystemExit(
            f"mutants: {mutant.name}: its text is not in {mutant.file} exactly once; write it again"
        )
    file.write_text(before.replace(mutant.old, mutant.new), encoding="utf-8")
    return file, before


def environment(copy: Path) -> dict[str, str]:
    """Return the environment variables with which a process runs *copy*."""
    paths = os.pathsep.join([str(copy / "src"), str(copy)])
    return {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}


def _unknown(name: str) -> str:
    return f"no bug is called {name!r}; there are: {', '.join(mutant.name for mutant in MUTANTS)}"


def _end(why: str) -> int:
    sys.stderr.write(f"mutants: {why}\n")
    return 1


def _copy(what: Path, where: Path) -> None:
    if what.is_dir():
        shutil.copytree(what, where)  # with compiled files, which stay valid for unchanged sources
    else:
        shutil.copyfile(what, where)


def _covers(net: str, mutant: Mutant) -> bool:
    return mutant.file.startswith(NETS[net][1])


def _caught(mutant: Mutant, copy: Path) -> str | None:
    """Run the nets in order until one catches the bug, and return its name; None if none does."""
    began = perf_counter()
    file, before = _plant(mutant, copy)
    try:
        net = next((net for net in NETS if _covers(net, mutant) and not _passes(net, copy)), None)
    finally:
        file.write_text(before, encoding="utf-8")
    outcome = f"caught by {net}" if net else "SURVIVED"
    sys.stdout.write(f"{mutant.name:<44} {outcome:<32} {perf_counter() - began:>5.0f} s\n")
    sys.stdout.flush()
    return net


def _passes(net: str, copy: Path) -> bool:
    """Return whether the net passes within its timeout."""
    command = [sys.executable, *NETS[net][0]]
    try:
        done = subprocess.run(command, cwd=copy, env=environment(copy), capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
