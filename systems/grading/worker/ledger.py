"""What the workers know of requests: who has one in hand, how often it was tried, how it ended, and what it has cost.

All workers share it: a file of SQLite on one machine, PostgreSQL on several. A request is suppressed only while a live lease or an end for it is on
record (G3): a redelivery after a crash finds neither, once the lease has run out, and is done. The charge of a request is one
row, written with its end; there is no second one, however often the message comes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from systems.grading.worker.places import place_of

_SCHEMA = """
CREATE TABLE IF NOT EXISTS request (
    request_id TEXT PRIMARY KEY,
    retries    INTEGER NOT NULL DEFAULT 0,
    crashes    INTEGER NOT NULL DEFAULT 0,
    holder     TEXT,
    until      {number},
    not_before {number} NOT NULL DEFAULT 0,        -- while it is put off
    ended      TEXT,                           -- the last callback, as it is sent
    buried     TEXT,                           -- the record for the dead-letter queue, where it was given up
    told       INTEGER NOT NULL DEFAULT 0,     -- both have reached the broker
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
    def __init__(self, where: Path | str, clock: Callable[[], float] | None = None) -> None:
        """*where*: a file, or the address of a PostgreSQL. Without a *clock* it goes by that of the place."""
        self._place = place_of(where, _SCHEMA, clock)

    def close(self) -> None:
        self._place.close()

    def now(self) -> float:
        """Seconds since 1970, by the clock that all who share the ledger go by."""
        with self._place.read() as book:
            return book.now

    # -- requests -----------------------------------------------------------------------------------------------------
    def take(self, request_id: str, holder: str, seconds: float) -> Taken | Held | Ended:
        with self._place.write(request_id) as book:
            now = book.now
            row = book.execute(
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
            book.execute(
                "INSERT INTO request (request_id, holder, until, at) VALUES (?, ?, ?, ?) ON CONFLICT (request_id)"
                " DO UPDATE SET holder = excluded.holder, until = excluded.until, crashes = ?",
                (request_id, holder, now + seconds, now, crashes),
            )
            return Taken(request_id, holder, retries, crashes)

    def extend(self, taken: Taken, seconds: float) -> bool:
        """Keep it in hand; False when it is in other hands now."""
        return self._change(taken, "until = ?", seconds)

    def put_off(self, taken: Taken, seconds: float, *, failed: bool) -> bool:
        """Out of hand, to be tried again after *seconds*. *failed*: this was one of its retries."""
        what = f"holder = NULL, until = NULL, crashes = 0, retries = retries + {int(failed)}, not_before = ?"
        return self._change(taken, what, seconds)

    def end(self, taken: Taken, callback: str, buried: str | None = None, cost: Cost | None = None) -> bool:
        """Its end and its charge, together; False when it is in other hands, or has ended: nothing is written then."""
        with self._place.write(taken.request_id) as book:
            done = book.execute(
                "UPDATE request SET holder = NULL, until = NULL, ended = ?, buried = ?"
                " WHERE request_id = ? AND holder = ? AND ended IS NULL",
                (callback, buried, taken.request_id, taken.holder),
            ).rowcount
            if done and cost is not None:
                book.execute(
                    "INSERT INTO charge VALUES (?, ?, ?, ?)",
                    (taken.request_id, cost.tokens, cost.seconds, book.now),
                )
            return bool(done)

    def refuse(self, request_id: str, callback: str) -> str | None:
        """The end of a request that came in a message which cannot be read, and the callback to send for it.

        None when the request is known already: it is in hand, will be tried again or has ended, and this was a bad copy of it.
        """
        with self._place.write(request_id) as book:
            book.execute(
                "INSERT INTO request (request_id, ended, at) VALUES (?, ?, ?) ON CONFLICT (request_id) DO NOTHING",
                (request_id, callback, book.now),
            )
            [[ended, told]] = book.execute(
                "SELECT ended, told FROM request WHERE request_id = ?", (request_id,)
            ).fetchall()
            return None if told or ended is None else str(ended)

    def told(self, request_id: str) -> None:
        with self._place.write(request_id) as book:
            book.execute("UPDATE request SET told = 1 WHERE request_id = ?", (request_id,))

    def charges(self) -> dict[str, Cost]:
        with self._place.read() as book:
            rows = book.execute("SELECT request_id, tokens, seconds FROM charge")
            return {request: Cost(tokens, seconds) for request, tokens, seconds in rows}

    def _change(self, taken: Taken, what: str, seconds: float) -> bool:
        """As long as it is in these hands. The `?` of *what* is *seconds* from now."""
        with self._place.write(taken.request_id) as book:
            done = book.execute(
                f"UPDATE request SET {what} WHERE request_id = ? AND holder = ?",
                (book.now + seconds, taken.request_id, taken.holder),
            )
            return bool(done.rowcount)

    # -- alarms: what a person must look at -----------------------------------------------------------------------------
    def raise_alarm(self, name: str, words: str) -> None:
        with self._place.write(f"alarm {name}") as book:
            book.execute(
                "INSERT INTO alarm VALUES (?, 1, ?, ?) ON CONFLICT (name)"
                " DO UPDATE SET count = alarm.count + 1, last = excluded.last, at = excluded.at",
                (name, words, book.now),
            )

    def alarms(self) -> list[Alarm]:
        with self._place.read() as book:
            return [Alarm(*row) for row in book.execute("SELECT * FROM alarm ORDER BY at DESC")]

    def clear_alarms(self) -> None:
        with self._place.write("alarms") as book:
            book.execute("DELETE FROM alarm")
