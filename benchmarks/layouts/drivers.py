"""The two drivers behind one small face. Both take $1 placeholders."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Protocol

import asyncpg
import psycopg
from psycopg import AsyncRawCursor
from psycopg.adapt import Dumper
from psycopg.pq import Format


class Db(Protocol):
    async def fetch(self, sql: str, *args: Any) -> Sequence[Any]: ...
    async def run(self, sql: str, *args: Any) -> None: ...
    async def script(self, sql: str) -> None: ...
    def ints(self, values: Sequence[int]) -> Any: ...
    def blobs(self, values: Sequence[bytes]) -> Any: ...
    def texts(self, values: Sequence[str]) -> Any: ...
    async def close(self) -> None: ...


class AsyncpgDb:
    name = "asyncpg"

    def __init__(self, con: asyncpg.Connection) -> None:
        self.con = con

    @classmethod
    async def open(cls, dsn: str) -> AsyncpgDb:
        return cls(await asyncpg.connect(dsn))

    async def fetch(self, sql: str, *args: Any) -> Sequence[Any]:
        return await self.con.fetch(sql, *args)

    async def run(self, sql: str, *args: Any) -> None:
        await self.con.execute(sql, *args)

    async def script(self, sql: str) -> None:
        await self.con.execute(sql)

    def ints(self, values: Sequence[int]) -> Any:
        return values

    def blobs(self, values: Sequence[bytes]) -> Any:
        return values

    def texts(self, values: Sequence[str]) -> Any:
        return values

    async def close(self) -> None:
        await self.con.close()


class ByteaArray(bytes):
    """A bytea[] already in its wire form: psycopg's own list dumper costs 3 us per element."""


class ByteaArrayDumper(Dumper):
    format = Format.BINARY
    oid = 1001

    def dump(self, obj: ByteaArray) -> bytes:
        return bytes(obj)


class PsycopgDb:
    name = "psycopg"

    def __init__(self, con: psycopg.AsyncConnection[Any]) -> None:
        self.con = con
        self.cur = con.cursor(binary=True)

    @classmethod
    async def open(cls, dsn: str) -> PsycopgDb:
        con = await psycopg.AsyncConnection.connect(
            dsn, autocommit=True, prepare_threshold=0, cursor_factory=AsyncRawCursor
        )
        con.adapters.register_dumper(ByteaArray, ByteaArrayDumper)
        return cls(con)

    async def fetch(self, sql: str, *args: Any) -> Sequence[Any]:
        await self.cur.execute(sql, args)
        return await self.cur.fetchall()

    async def run(self, sql: str, *args: Any) -> None:
        await self.cur.execute(sql, args)

    async def script(self, sql: str) -> None:
        await self.con.execute(sql, prepare=False)

    def ints(self, values: Sequence[int]) -> Any:
        # A list of int is sent as int2[], int4[] or int8[] by its largest value: one prepared statement for
        # each. A text literal has one type, and is faster to make.
        return "{" + ",".join(map(str, values)) + "}"

    def blobs(self, values: Sequence[bytes]) -> Any:
        head = struct.pack(">iiiii", 1, 0, 17, len(values), 1)
        return ByteaArray(head + b"".join([len(v).to_bytes(4, "big") + v for v in values]))

    def texts(self, values: Sequence[str]) -> Any:
        return list(values)

    async def close(self) -> None:
        await self.con.close()


DRIVERS: dict[str, Any] = {"asyncpg": AsyncpgDb, "psycopg": PsycopgDb}
