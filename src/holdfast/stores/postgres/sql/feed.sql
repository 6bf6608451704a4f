-- The whole log, each row once, none missed: the reader stops before the oldest transaction still running, because that one
-- may yet write below what is there (see event_number). $1 seq to begin with, $2 limit of rows, $3 the event_offset, read
-- by a statement before this one: one read after this one's snapshot may have been raised in between.
SELECT e.seq, e.at, e.kind, e.job_ids, e.epochs, e.attempts, e.durations, e.metas, s.worker
  FROM holdfast.event e LEFT JOIN holdfast.session s ON s.id = e.session_id
 WHERE e.seq >= $1::bigint AND e.seq < ((pg_snapshot_xmin(pg_current_snapshot())::text::bigint + $3::bigint) << 20)
 ORDER BY e.seq LIMIT $2::int
