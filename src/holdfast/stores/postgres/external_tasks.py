"""External tasks on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.outbox.model import NewMessage
from holdfast.stores.external_tasks import SqlExternalTasks
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.outbox import publish_parameters

_SINCE = """greatest(j.created_at, g.queued_at, CASE WHEN isfinite(w.run_at) THEN w.run_at END,
                     (SELECT max(a.ended_at) FROM holdfast.attempt a WHERE a.job_id = w.id))"""
_HELD = (
    "(SELECT holdfast.held_lanes(ARRAY(SELECT id FROM holdfast.lane WHERE task = ANY ($1::text[])), false))"
)
_SELECT = f"""SELECT w.id, n.task, w.generation, w.attempt, j.payload, j.version, j.trace, {_SINCE},
       w.due AND w.lane <> ALL ({_HELD}::int[]), w.deadline_at"""
_REST = "JOIN holdfast.job j ON j.id = w.id LEFT JOIN holdfast.life g ON g.job_id = w.id"
_WAITING = f"""{_SELECT}
  FROM (SELECT id, lane, generation, attempt, run_at, deadline_at, true AS due FROM holdfast.ready WHERE id = ANY ($2::uuid[])
        UNION ALL
        SELECT id, lane, generation, attempt, run_at, deadline_at, false FROM holdfast.deferred WHERE id = ANY ($2::uuid[])) w
  JOIN holdfast.lane n ON n.id = w.lane {_REST} WHERE n.task = ANY ($1::text[])"""
_NEWLY_DUE = f"""{_SELECT}
  FROM holdfast.lane n CROSS JOIN LATERAL (SELECT *, true AS due FROM holdfast.ready r WHERE r.lane = n.id) w {_REST}
 WHERE n.task = ANY ($1::text[]) AND w.id > $2::uuid
   AND CASE WHEN w.attempt = 0 THEN w.generation > 1 OR w.run_at IS NOT NULL OR w.key IS NOT NULL
            ELSE (SELECT a.outcome FROM holdfast.attempt a WHERE a.job_id = w.id ORDER BY a.epoch DESC LIMIT 1)
                 IN ('reclaimed', 'retry') END
 ORDER BY w.id LIMIT $3::int"""
_UNPUBLISHED = f"""{_SELECT}
  FROM holdfast.lane n CROSS JOIN LATERAL (SELECT *, true AS due FROM holdfast.ready r WHERE r.lane = n.id) w {_REST}
 WHERE n.task = ANY ($1::text[]) AND w.id > $2::uuid AND w.attempt = 0
   AND NOT EXISTS (SELECT FROM holdfast.outbox o WHERE o.id = concat(w.id, '.', w.generation))
   AND NOT EXISTS (SELECT FROM holdfast.outbox_sent s WHERE s.id = concat(w.id, '.', w.generation))
 ORDER BY w.id LIMIT $3::int"""
_OVERDUE = f"""{_SELECT}
  FROM unnest($1::text[], $4::interval[]) AS t(task, span) JOIN holdfast.lane n ON n.task = t.task
       CROSS JOIN LATERAL (SELECT *, true AS due FROM holdfast.ready r WHERE r.lane = n.id) w {_REST}
 WHERE w.id > $2::uuid AND {_SINCE} <= (SELECT holdfast.clock()) - t.span
 ORDER BY w.id LIMIT $3::int"""
_KNOWN = """SELECT id FROM holdfast.outbox WHERE id = ANY ($1::text[])
            UNION ALL SELECT id FROM holdfast.outbox_sent WHERE id = ANY ($1::text[])"""


class PostgresExternalTasks(SqlExternalTasks):
    _waiting, _newly_due, _unpublished, _overdue, _known = (
        _WAITING,
        _NEWLY_DUE,
        _UNPUBLISHED,
        _OVERDUE,
        _KNOWN,
    )

    async def publish(self, messages: Sequence[NewMessage]) -> None:
        # Relays are notified by this very transaction, because only its owner knows when it commits.
        await self._transaction.execute(SQL["publish"], *publish_parameters(messages, notify=True))
