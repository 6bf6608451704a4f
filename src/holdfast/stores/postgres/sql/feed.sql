-- The rows of the event log, each once and none missed. The reader stops before the oldest running transaction, because that one may
-- still write an event with a lower number (see event_number). $1 seq to begin with, $2 limit of rows, $3 the event_offset, read by an
-- earlier statement: one read after this statement's snapshot may have been raised in between.
SELECT e.seq, e.at, e.kind, e.job_ids, e.epochs, e.attempts, e.durations, e.metas, s.worker
  FROM holdfast.event e LEFT JOIN holdfast.session s ON s.id = e.session_id
 WHERE e.seq >= $1::bigint AND e.seq < ((pg_snapshot_xmin(pg_current_snapshot())::text::bigint + $3::bigint) << 20)
 ORDER BY e.seq LIMIT $2::int
