-- The same parameters as enqueue.sql; for a send whose first answer was lost. Inserts only what is missing,
-- and no second event for what is there. Returns the ids that were new.
WITH q AS MATERIALIZED (
    SELECT n.seq, n.at, (extract(epoch FROM n.at) * 1000000)::bigint AS ord
    FROM (SELECT nextval('holdfast.event_seq') AS seq, clock_timestamp() AS at OFFSET 0) n
), j AS (
    INSERT INTO holdfast.job (id, created_at, queued_seq, lane, kind, prio, payload)
    SELECT u.id, q.at, q.seq, u.lane, u.kind, u.prio, u.payload
    FROM q, unnest($1::/*id*/bigint[], $2::int[], $3::smallint[], $4::int[], $5::bytea[])
        AS u(id, lane, prio, kind, payload)
    ON CONFLICT (id) DO NOTHING
    RETURNING id, lane, prio
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, attempt, prio, failures, crashes)
    SELECT q.ord, j.id, j.lane, 0, j.prio, 0, 0 FROM q, j
), e AS (
    INSERT INTO holdfast.event (seq, at, kind, job_ids)
    SELECT q.seq, q.at, 1, array_agg(j.id) FROM q, j GROUP BY q.seq, q.at
)
SELECT id FROM j
