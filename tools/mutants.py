"""Plants bugs in a copy of the source, one at a time, and shows which net catches each: `make mutants`.

A net that is green proves nothing until it has been red. The nets are run on the copy without a bug first; then a bug that no
net catches fails the whole. Names after the command choose some of the bugs: `python tools/mutants.py fence notify`. With
`--record FILE` it is written down who caught which.
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
COPIED = ("src", "tests", "tools", "pyproject.toml")
SECONDS = 600  #: a bug that makes a net hang is caught, too

PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
#: The nets, quickest first: what is run, by which files can be caught there.
NETS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "group writes": (
        (*PYTEST, "tests/unit/test_coalesce.py", "tests/unit/test_writer.py"),
        ("engine/coalesce", "stores/sqlite/writer"),
    ),
    "exhaustive": (
        (*PYTEST, "tests/exhaustive", "-k", "no_order and not three"),
        ("stores/memory", "domain", "engine"),
    ),
    "simulation": (("-m", "tests.simulation", "0", "60"), ("stores/memory", "domain", "engine", "worker")),
    "stories told by hand": ((*PYTEST, "tests/simulation/test_stories.py"), ("worker",)),
    "simulation on sqlite": (("-m", "tests.simulation", "--store", "sqlite", "0", "30"), ("stores/sqlite",)),
    "stateful": ((*PYTEST, "tests/stateful/test_model.py", "-k", "memory"), ("stores/memory", "domain")),
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
    """One bug: *old* must be in the file exactly once."""

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
        "case State.FAILED | State.CANCELLED:",
        "case State.FAILED | State.CANCELLED | State.COMPLETE:",
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
        "domain/policy.py",
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
        "worker/lease_reconciler.py",
        "self._doubt_until = self._engine.clock.monotonic() + DOUBT_FOR",
        "self._doubt_until = 0.0",
    ),
    Mutant(
        "doubt ends with a late look",
        "worker/lease_reconciler.py",
        "            self._give_back_unknown(held)\n",
        "            self._give_back_unknown(held)\n            self._doubt_until = 0.0\n",
    ),
    Mutant("trial given back while it ends", "worker/lease_reconciler.py", " - under_way.ending", ""),
    Mutant(
        "slow claim given back",
        "worker/lease_reconciler.py",
        "if all(claim > self._suspects[lease] for claim in self._claims):",
        "if True:",
    ),
    Mutant(
        "half a claim forgotten",
        "worker/claiming.py",
        "            self._watch.doubt()  # of several lanes one may have given jobs before the other was refused\n",
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
        "if overran.get(r.lease) is (not r.crashed)}",
        "if _holds(move, r.lease)}",
    ),
    Mutant(
        "event outside the transaction",
        f"{_SQLITE}/move.py",
        "        row = (seq, self.now, int(kind), to_json(moves))",
        '        self.connection.execute("COMMIT")\n        self.connection.execute("BEGIN IMMEDIATE")\n'
        "        row = (seq, self.now, int(kind), to_json(moves))",
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
        place = words.index("--record")
        if len(words) == place + 1:
            return _end("--record wants a file")
        record = Path(words.pop(place + 1))
        words.remove("--record")
    mutants = [one for one in MUTANTS if not words or any(word in one.name for word in words)]
    if not mutants:
        return _end(_unknown(" ".join(words)))
    with copied() as copy:
        for net in NETS:
            if any(_sees(net, one) for one in mutants) and not _holds(net, copy):
                return _end(f"{net} fails without any bug; mend that first")
        caught = {one.name: _caught(one, copy) for one in mutants}
    survivors = [name for name, net in caught.items() if net is None]
    if record is not None:
        command = " ".join(["python tools/mutants.py", *chosen])
        record.write_text(json.dumps({"command": command, "caught": caught}, indent=1) + "\n")
    if survivors:
        return _end(f"nobody caught: {', '.join(survivors)}")
    sys.stdout.write(f"all {len(mutants)} caught\n")
    return 0


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the source and its tests, to be changed at will."""
    with TemporaryDirectory() as folder:
        for name in COPIED:
            _copy(ROOT / name, Path(folder) / name)
        yield Path(folder)


@contextmanager
def planted(name: str) -> Iterator[Path]:
    """A copy with that bug in it."""
    mutant = next((one for one in MUTANTS if one.name == name), None)
    if mutant is None:
        raise SystemExit(_unknown(name))
    with copied() as copy:
        _plant(mutant, copy)
        yield copy


def _plant(mutant: Mutant, copy: Path) -> tuple[Path, str]:
    """The file it is in, and what was written there before."""
    file = copy / "src" / "holdfast" / mutant.file
    before = file.read_text(encoding="utf-8")
    if before.count(mutant.old) != 1:
        raise SystemExit(
            f"mutants: {mutant.name}: its text is not in {mutant.file} exactly once; write it anew"
        )
    file.write_text(before.replace(mutant.old, mutant.new), encoding="utf-8")
    return file, before


def environment(copy: Path) -> dict[str, str]:
    """In which a process runs the copy instead of this."""
    paths = os.pathsep.join([str(copy / "src"), str(copy)])
    return {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}


def _unknown(name: str) -> str:
    return f"no bug is called {name!r}; there are: {', '.join(one.name for one in MUTANTS)}"


def _end(why: str) -> int:
    sys.stderr.write(f"mutants: {why}\n")
    return 1


def _copy(what: Path, where: Path) -> None:
    if what.is_dir():
        shutil.copytree(what, where)  # with what is compiled: it is taken for what was not changed since
    else:
        shutil.copyfile(what, where)


def _sees(net: str, mutant: Mutant) -> bool:
    return mutant.file.startswith(NETS[net][1])


def _caught(mutant: Mutant, copy: Path) -> str | None:
    """Run the nets one after the other until one catches it; which one did."""
    began = perf_counter()
    file, before = _plant(mutant, copy)
    try:
        net = next((net for net in NETS if _sees(net, mutant) and not _holds(net, copy)), None)
    finally:
        file.write_text(before, encoding="utf-8")
    told = f"caught by {net}" if net else "SURVIVED"
    sys.stdout.write(f"{mutant.name:<44} {told:<32} {perf_counter() - began:>5.0f} s\n")
    sys.stdout.flush()
    return net


def _holds(net: str, copy: Path) -> bool:
    """Whether the net is green. One that does not end in time is not."""
    command = [sys.executable, *NETS[net][0]]
    try:
        done = subprocess.run(command, cwd=copy, env=environment(copy), capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
