"""The workers' shared record of requests: the worker that holds one, its retries, its end and its cost.

The ledger is an SQLite file for workers on one machine, or PostgreSQL for several. A delivery is suppressed
only while the ledger has a live lease or an end for its request (G3). A redelivery after a crash finds
neither once the lease has run out, and is handled. The charge of a request is one row, written together with
its end, so repeated deliveries are never charged twice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from systems.grading.worker.ledger_stores import open_store

_SCHEMA = """
CREATE TABLE IF NOT EXISTS request (
    request_id TEXT PRIMARY KEY,
    retries    INTEGER NOT NULL DEFAULT 0,
    crashes    INTEGER NOT NULL DEFAULT 0,
    holder     TEXT,
    until      {number},
    not_before {number} NOT NULL DEFAULT 0,    -- the time until which it is put off
    ended      TEXT,                           -- the last callback, as sent
    buried     TEXT,                           -- the dead letter, if it was given up
    reported   INTEGER NOT NULL DEFAULT 0,     -- 1 once the broker has both
    at         {number} NOT NULL,
    CHECK ((holder IS NULL) = (until IS NULL)),
    CHECK (ended IS NULL OR holder IS NULL)
){strict};
CREATE TABLE IF NOT EXISTS charge (
    request_id TEXT PRIMARY KEY REFERENCES request,
    tokens     INTEGER NOT NULL,
    seconds    {number} NOT NULL,
    at         {number} NOT NULL
){strict};
CREATE TABLE IF NOT EXISTS alarm (name TEXT PRIMARY KEY, count INTEGER NOT NULL, last TEXT NOT NULL, at {number} NOT NULL){strict};
"""


_UNKNOWN = (0, 0, None, None, 0.0, None, None, 0)
#: A wait queue may deliver this many seconds early.
_TOLERANCE = 0.25


class Taken(NamedTuple):
    """The caller holds the request.

    *crashes* is the number of workers in a row that were lost while they held it.
    """

    request_id: str
    holder: str
    retries: int
    crashes: int


class Held(NamedTuple):
    """Another worker holds the request, or it is put off, for *left* more seconds.

    A worker may renew its lease.
    """

    left: float


class Ended(NamedTuple):
    """The request has ended. *reported* means that the broker has the callback and the dead letter."""

    callback: str
    dead_letter: str | None
    reported: bool


class Cost(NamedTuple):
    """The cost of a request: tokens, and seconds of audio."""

    tokens: int = 0
    seconds: float = 0.0


class Alarm(NamedTuple):
    """A problem that an operator must check: how often it occurred, with its last message and time."""

    name: str
    times: int
    last: str
    at: float


class Ledger:
    """The shared ledger of the workers."""

    def __init__(self, where: Path | str, clock: Callable[[], float] | None = None) -> None:
        """*where* is a file or the address of a PostgreSQL.

        By default the ledger uses the clock of that store.
        """
        self._store = open_store(where, _SCHEMA, clock)

    def close(self) -> None:
        self._store.close()

    def now(self) -> float:
        """Return the time in seconds since 1970, by the clock that all users of the ledger share."""
        with self._store.read() as transaction:
            return transaction.now

    # -- requests
    # -----------------------------------------------------------------------------------------------------
    def take(self, request_id: str, holder: str, seconds: float) -> Taken | Held | Ended:
        """Take the lease of a request for *seconds*, unless it has ended, is held, or is put off."""
        with self._store.write(request_id) as transaction:
            now = transaction.now
            row = transaction.execute(
                "SELECT retries, crashes, holder, until, not_before, ended, buried, reported FROM request"
                " WHERE request_id = ?",
                (request_id,),
            ).fetchone()
            retries, crashes, other, until, not_before, ended, letter, reported = row or _UNKNOWN
            if ended is not None:
                return Ended(ended, letter, bool(reported))
            if until is not None and until > now:
                return Held(until - now)
            if not_before > now + _TOLERANCE:
                return Held(not_before - now)
            crashes += other is not None
            transaction.execute(
                "INSERT INTO request (request_id, holder, until, at) VALUES (?, ?, ?, ?) ON CONFLICT (request_id)"
                " DO UPDATE SET holder = excluded.holder, until = excluded.until, crashes = ?",
                (request_id, holder, now + seconds, now, crashes),
            )
            return Taken(request_id, holder, retries, crashes)

    def extend(self, taken: Taken, seconds: float) -> bool:
        """Renew the lease for *seconds*. Return False if another worker has the request."""
        return self._change(taken, "until = ?", seconds)

    def put_off(self, taken: Taken, seconds: float, *, failed: bool) -> bool:
        """Release the request, to be retried after *seconds*. Return False if another worker has it.

        *failed* uses up one of its retries.
        """
        changes = (
            f"holder = NULL, until = NULL, crashes = 0, retries = retries + {int(failed)}, not_before = ?"
        )
        return self._change(taken, changes, seconds)

    def end(self, taken: Taken, callback: str, letter: str | None = None, cost: Cost | None = None) -> bool:
        """End the request and charge its cost, in one transaction.

        Return False, and write nothing, if another worker has the request or it has ended.
        """
        with self._store.write(taken.request_id) as transaction:
            done = transaction.execute(
                "UPDATE request SET holder = NULL, until = NULL, ended = ?, buried = ?"
                " WHERE request_id = ? AND holder = ? AND ended IS NULL",
                (callback, letter, taken.request_id, taken.holder),
            ).rowcount
            if done and cost is not None:
                transaction.execute(
                    "INSERT INTO charge VALUES (?, ?, ?, ?)",
                    (taken.request_id, cost.tokens, cost.seconds, transaction.now),
                )
            return bool(done)

    def refuse(self, request_id: str, callback: str) -> str | None:
        """End the request of an invalid message, and return the callback to send.

        Return None if the ledger already knows the request. The message was then a bad copy of it.
        """
        with self._store.write(request_id) as transaction:
            transaction.execute(
                "INSERT INTO request (request_id, ended, at) VALUES (?, ?, ?) ON CONFLICT (request_id) DO NOTHING",
                (request_id, callback, transaction.now),
            )
            [[ended, reported]] = transaction.execute(
                "SELECT ended, reported FROM request WHERE request_id = ?", (request_id,)
            ).fetchall()
            return None if reported or ended is None else str(ended)

    def mark_reported(self, request_id: str) -> None:
        """Record that the broker has the last callback and the dead letter of a request."""
        with self._store.write(request_id) as transaction:
            transaction.execute("UPDATE request SET reported = 1 WHERE request_id = ?", (request_id,))

    def charges(self) -> dict[str, Cost]:
        """Return the cost of each charged request."""
        with self._store.read() as transaction:
            rows = transaction.execute("SELECT request_id, tokens, seconds FROM charge")
            return {request: Cost(tokens, seconds) for request, tokens, seconds in rows}

    def _change(self, taken: Taken, changes: str, seconds: float) -> bool:
        """Apply *changes* if the caller still holds the request. Their `?` is the time *seconds* from now."""
        with self._store.write(taken.request_id) as transaction:
            done = transaction.execute(
                f"UPDATE request SET {changes} WHERE request_id = ? AND holder = ?",
                (transaction.now + seconds, taken.request_id, taken.holder),
            )
            return bool(done.rowcount)

    # -- alarms: problems that an operator must check
    # -------------------------------------------------------------------
    def raise_alarm(self, name: str, message: str) -> None:
        """Count an alarm and store its message."""
        with self._store.write(f"alarm {name}") as transaction:
            transaction.execute(
                "INSERT INTO alarm VALUES (?, 1, ?, ?) ON CONFLICT (name)"
                " DO UPDATE SET count = alarm.count + 1, last = excluded.last, at = excluded.at",
                (name, message, transaction.now),
            )

    def alarms(self) -> list[Alarm]:
        """Return the alarms, the latest first."""
        with self._store.read() as transaction:
            return [Alarm(*row) for row in transaction.execute("SELECT * FROM alarm ORDER BY at DESC")]

    def clear_alarms(self) -> None:
        """Delete all alarms."""
        with self._store.write("alarms") as transaction:
            transaction.execute("DELETE FROM alarm")
