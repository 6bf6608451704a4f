-- The whole log, each row once, none missed: the reader stops before the oldest transaction still running, because that one
-- may yet write below what is there (see event_number). $1 seq to begin with, $2 limit of rows
SELECT e.seq, e.at, e.kind, e.job_ids, e.epochs, e.attempts, e.durations, e.metas, s.worker
  FROM holdfast.event e LEFT JOIN holdfast.session s ON s.id = e.session_id
 WHERE e.seq >= $1::bigint AND e.seq < (pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 20)
 ORDER BY e.seq LIMIT $2::int
