-- The whole log, each row once, nothing missed. $1 last seq, $2 limit, $3 last xid as text ('0' at the start).
-- A seq is taken before its transaction commits, and a later transaction may commit first. So the order is (xid, seq)
-- and the reader stops before the oldest transaction still running: all rows before that point are final.
SELECT seq, xid::text AS xid, at, session_id, kind, job_ids, epochs, attempts
FROM holdfast.event
WHERE xid < pg_snapshot_xmin(pg_current_snapshot()) AND (xid, seq) > ($3::text::xid8, $1::bigint)
ORDER BY event.xid, seq
LIMIT $2::int
