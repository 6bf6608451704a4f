-- newest_event: the newest row of the event log that a reader may pass, and how many moves it records. $1 the event_offset, as in `feed`
SELECT seq, cardinality(job_ids) AS moves FROM holdfast.event
 WHERE seq < ((pg_snapshot_xmin(pg_current_snapshot())::text::bigint + $1::bigint) << 20) ORDER BY seq DESC LIMIT 1
