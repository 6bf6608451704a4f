"""`promote` on PostgreSQL reads as many rows as it lets into line, also before anybody has analysed the table."""

from __future__ import annotations

import json

import pytest

from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.enqueue_plan import SQL

pytestmark = pytest.mark.anyio

DUE, LIMIT = 20_000, 10


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("paused", [False, True])
async def test_a_round_of_promote_does_not_walk_over_all_who_are_due(
    postgres_url: str, mode: str, paused: bool
) -> None:  # E51
    connection = await Connections(postgres_url).connect()
    try:
        await connection.execute("ALTER TABLE holdfast.deferred SET (autovacuum_enabled = off)")
        await connection.execute(
            "INSERT INTO holdfast.deferred (run_at, id, lane, prio, attempt, crashes, generation)"
            f" SELECT now() - interval '1 h', gen_random_uuid(), 1, 0, 0, 0, 1 FROM generate_series(1, {DUE})"
        )
        if paused:
            await connection.execute(
                "INSERT INTO holdfast.hold (kind, name, cause, until, reason, by, at)"
                " VALUES ('maintenance', 'delayed', 'pause', 'infinity', '', 'ann', now())"
            )
        await connection.execute(f"SET plan_cache_mode = {mode}")
        async with connection.transaction():
            [(plan,)] = await connection.fetch(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {SQL['promote']}", LIMIT
            )
            [(waiting,)] = await connection.fetch("SELECT count(*) FROM holdfast.deferred")
        assert waiting == DUE - (0 if paused else LIMIT)
        top = json.loads(plan)[0]["Plan"]
        assert "Sort" not in plan.replace('"Sort Key"', "")
        assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] <= 60 * LIMIT
    finally:
        await connection.close()
