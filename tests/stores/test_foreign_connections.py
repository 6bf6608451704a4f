"""`connection=` wants a connection: what hands them out is refused with the way to get one."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from holdfast.errors import UsageError
from holdfast.stores.foreign_connections import refuse_lender

ENGINE = sqlalchemy.create_engine("sqlite://")


def _pool() -> Any:
    return asyncpg.Pool.__new__(asyncpg.Pool)


@pytest.mark.parametrize(
    ("lender", "way"),
    [
        (ENGINE, "`with engine.begin() as connection:`"),
        (create_async_engine("sqlite+aiosqlite://"), "(`async with` for an async engine)"),
        (sessionmaker(ENGINE), "`with engine.begin() as connection:`"),
        (async_sessionmaker(), "(`async with` for an async engine)"),
        (_pool(), "`async with pool.acquire() as connection, connection.transaction():`"),
    ],
)
def test_what_hands_out_connections_is_refused_with_the_way_to_get_one(lender: Any, way: str) -> None:
    with pytest.raises(
        UsageError, match="which has no transaction of its own; pass the connection of"
    ) as refused:
        refuse_lender(lender)
    assert way in str(refused.value)


def test_connections_and_sessions_pass() -> None:
    with ENGINE.connect() as connection, Session(ENGINE) as session:
        refuse_lender(connection)
        refuse_lender(session)
        refuse_lender(object())
