-- One job, one caller, nothing to coalesce with. $1 id, $2 lane, $3 prio, $4 kind, $5 payload. No arrays to unpack.
WITH q AS MATERIALIZED (
    SELECT nextval('holdfast.event_seq') AS seq, clock_timestamp() AS at
), j AS (
    INSERT INTO holdfast.job (id, created_at, queued_seq, lane, kind, prio, payload)
    SELECT $1::/*id*/bigint, q.at, q.seq, $2::int, $4::int, $3::smallint, $5::bytea FROM q
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, attempt, prio, failures, crashes)
    SELECT (extract(epoch FROM q.at) * 1000000)::bigint, $1::/*id*/bigint, $2::int, 0, $3::smallint, 0, 0 FROM q
)
INSERT INTO holdfast.event (seq, at, kind, job_ids)
SELECT q.seq, q.at, 1, ARRAY[$1::/*id*/bigint] FROM q
