"""What the workers know of requests: who has one in hand, how often it was tried, how it ended, and what it has cost.

A file of SQLite that all workers of a machine share. A request is suppressed only while a live lease or an end for it is on
record (G3): a redelivery after a crash finds neither, once the lease has run out, and is done. The charge of a request is one
row, written with its end; there is no second one, however often the message comes.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from systems.grading.worker.breaker import Breaker, Permit, Policy

_SCHEMA = """
CREATE TABLE IF NOT EXISTS request (
    request_id TEXT PRIMARY KEY,
    retries    INTEGER NOT NULL DEFAULT 0,
    crashes    INTEGER NOT NULL DEFAULT 0,
    holder     TEXT,
    until      REAL,
    not_before REAL NOT NULL DEFAULT 0,        -- while it is put off
    ended      TEXT,                           -- the last callback, as it is sent
    buried     TEXT,                           -- the record for the dead-letter queue, where it was given up
    told       INTEGER NOT NULL DEFAULT 0,     -- both have reached the broker
    at         REAL NOT NULL,
    CHECK ((holder IS NULL) = (until IS NULL)),
    CHECK (ended IS NULL OR holder IS NULL)
) STRICT;
CREATE TABLE IF NOT EXISTS charge (
    request_id TEXT PRIMARY KEY REFERENCES request,
    tokens     INTEGER NOT NULL,
    seconds    REAL NOT NULL,
    at         REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS breaker (name TEXT PRIMARY KEY, state TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS alarm (name TEXT PRIMARY KEY, count INTEGER NOT NULL, last TEXT NOT NULL, at REAL NOT NULL) STRICT;
"""


_UNKNOWN = (0, 0, None, None, 0.0, None, None, 0)
#: The queues of waits keep their time to about this.
_NEARLY = 0.25


class Taken(NamedTuple):
    """It is ours to do. *crashes* in a row before: workers that had it and were heard of no more."""

    request_id: str
    holder: str
    retries: int
    crashes: int


class Held(NamedTuple):
    """Another worker has it in hand for *left* more seconds, unless it renews that; or it is put off for so long."""

    left: float


class Ended(NamedTuple):
    callback: str
    buried: str | None
    told: bool


class Cost(NamedTuple):
    tokens: int = 0
    seconds: float = 0.0


class Alarm(NamedTuple):
    """Something that a person must look at, how often it came about, and its last words and time."""

    name: str
    times: int
    last: str
    at: float


class Ledger:
    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._file, self._clock = file, clock
        file.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_SCHEMA)

    # -- requests -----------------------------------------------------------------------------------------------------
    def take(self, request_id: str, holder: str, seconds: float) -> Taken | Held | Ended:
        now = self._clock()
        with self._write() as connection:
            row = connection.execute(
                "SELECT retries, crashes, holder, until, not_before, ended, buried, told FROM request"
                " WHERE request_id = ?",
                (request_id,),
            ).fetchone()
            retries, crashes, other, until, not_before, ended, buried, told = row or _UNKNOWN
            if ended is not None:
                return Ended(ended, buried, bool(told))
            if until is not None and until > now:
                return Held(until - now)
            if not_before > now + _NEARLY:
                return Held(not_before - now)
            crashes += other is not None
            connection.execute(
                "INSERT INTO request (request_id, holder, until, at) VALUES (?, ?, ?, ?) ON CONFLICT (request_id)"
                " DO UPDATE SET holder = excluded.holder, until = excluded.until, crashes = ?",
                (request_id, holder, now + seconds, now, crashes),
            )
            return Taken(request_id, holder, retries, crashes)

    def extend(self, taken: Taken, seconds: float) -> bool:
        """Keep it in hand; False when it is in other hands now."""
        return self._change(taken, "until = ?", self._clock() + seconds)

    def put_off(self, taken: Taken, seconds: float, *, failed: bool) -> bool:
        """Out of hand, to be tried again after *seconds*. *failed*: this was one of its retries."""
        what = "holder = NULL, until = NULL, crashes = 0, retries = retries + ?, not_before = ?"
        return self._change(taken, what, int(failed), self._clock() + seconds)

    def end(self, taken: Taken, callback: str, buried: str | None = None, cost: Cost | None = None) -> bool:
        """Its end and its charge, together; False when it is in other hands, or has ended: nothing is written then."""
        now = self._clock()
        with self._write() as connection:
            done = connection.execute(
                "UPDATE request SET holder = NULL, until = NULL, ended = ?, buried = ?"
                " WHERE request_id = ? AND holder = ? AND ended IS NULL",
                (callback, buried, taken.request_id, taken.holder),
            ).rowcount
            if done and cost is not None:
                connection.execute(
                    "INSERT INTO charge VALUES (?, ?, ?, ?)",
                    (taken.request_id, cost.tokens, cost.seconds, now),
                )
            return bool(done)

    def refuse(self, request_id: str, callback: str) -> str | None:
        """The end of a request that came in a message which cannot be read, and the callback to send for it.

        None when the request is known already: it is in hand, will be tried again or has ended, and this was a bad copy of it.
        """
        with self._write() as connection:
            connection.execute(
                "INSERT INTO request (request_id, ended, at) VALUES (?, ?, ?) ON CONFLICT (request_id) DO NOTHING",
                (request_id, callback, self._clock()),
            )
            ended, told = connection.execute(
                "SELECT ended, told FROM request WHERE request_id = ?", (request_id,)
            ).fetchone()
            return None if told else ended

    def told(self, request_id: str) -> None:
        with self._write() as connection:
            connection.execute("UPDATE request SET told = 1 WHERE request_id = ?", (request_id,))

    def charges(self) -> dict[str, Cost]:
        with self._open() as connection:
            rows = connection.execute("SELECT request_id, tokens, seconds FROM charge")
            return {request: Cost(tokens, seconds) for request, tokens, seconds in rows}

    def _change(self, taken: Taken, what: str, *values: Any) -> bool:
        with self._write() as connection:
            return bool(
                connection.execute(
                    f"UPDATE request SET {what} WHERE request_id = ? AND holder = ?",
                    (*values, taken.request_id, taken.holder),
                ).rowcount
            )

    # -- the breakers, shared by all workers ----------------------------------------------------------------------------
    def may_call(self, name: str, policy: Policy) -> Permit:
        with self._write() as connection:
            after, permit = self._breaker(connection, name).ask(policy, self._clock())
            self._keep(connection, name, after)
            return permit

    def called(self, name: str, policy: Policy, permit: Permit, *, good: bool | None) -> Breaker:
        with self._write() as connection:
            after = self._breaker(connection, name).tell(policy, self._clock(), good=good, trial=permit.trial)
            self._keep(connection, name, after)
            return after

    def breaker(self, name: str) -> Breaker:
        with self._open() as connection:
            return self._breaker(connection, name)

    def _breaker(self, connection: sqlite3.Connection, name: str) -> Breaker:
        row = connection.execute("SELECT state FROM breaker WHERE name = ?", (name,)).fetchone()
        return Breaker() if row is None else msgspec.json.decode(row[0], type=Breaker)

    def _keep(self, connection: sqlite3.Connection, name: str, breaker: Breaker) -> None:
        state = msgspec.json.encode(breaker).decode()
        connection.execute("INSERT OR REPLACE INTO breaker VALUES (?, ?)", (name, state))

    # -- alarms: what a person must look at -----------------------------------------------------------------------------
    def raise_alarm(self, name: str, words: str) -> None:
        with self._write() as connection:
            connection.execute(
                "INSERT INTO alarm VALUES (?, 1, ?, ?) ON CONFLICT (name)"
                " DO UPDATE SET count = count + 1, last = excluded.last, at = excluded.at",
                (name, words, self._clock()),
            )

    def alarms(self) -> list[Alarm]:
        with self._open() as connection:
            return [Alarm(*row) for row in connection.execute("SELECT * FROM alarm ORDER BY at DESC")]

    def clear_alarms(self) -> None:
        with self._write() as connection:
            connection.execute("DELETE FROM alarm")

    # -- the file -------------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one piece of work: threads and forks cannot share one, and opening costs little."""
        connection = sqlite3.connect(self._file, timeout=10, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection
        finally:
            connection.close()

    @contextlib.contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")  # without it, closing rolls back
