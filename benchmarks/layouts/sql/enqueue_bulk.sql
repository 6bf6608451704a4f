-- Bulk of one kind in one lane. $1 ids, $2 lane, $3 prio, $4 kind, $5 payloads bytea[]. 1000 rows per statement.
WITH q AS MATERIALIZED (
    SELECT n.seq, n.at, (extract(epoch FROM n.at) * 1000000)::bigint AS ord
    FROM (SELECT nextval('holdfast.event_seq') AS seq, clock_timestamp() AS at OFFSET 0) n
), j AS (
    INSERT INTO holdfast.job (id, created_at, queued_seq, lane, kind, prio, payload)
    SELECT u.id, q.at, q.seq, $2::int, $4::int, $3::smallint, u.payload
    FROM q, unnest($1::/*id*/bigint[], $5::bytea[]) AS u(id, payload)
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, attempt, prio, failures, crashes)
    SELECT q.ord, u.id, $2::int, 0, $3::smallint, 0, 0
    FROM q, unnest($1::/*id*/bigint[]) AS u(id)
)
INSERT INTO holdfast.event (seq, at, kind, job_ids)
SELECT q.seq, q.at, 1, $1::/*id*/bigint[] FROM q
