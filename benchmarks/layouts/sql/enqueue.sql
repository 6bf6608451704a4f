-- Coalesced enqueues of many callers. $1 ids, $2 lanes int[], $3 prios smallint[], $4 kinds int[], $5 payloads bytea[]
-- First send: a plain INSERT. A repeated id raises unique_violation: the caller then sends enqueue_again.sql.
-- (ON CONFLICT on every enqueue costs about 50 B of WAL and half as much CPU again per row.)
-- ord = the store's clock in microseconds, one value per statement; the id breaks ties. Computed once in q:
-- extract() is numeric, and numeric arithmetic per row is dear.
WITH q AS MATERIALIZED (
    SELECT n.seq, n.at, (extract(epoch FROM n.at) * 1000000)::bigint AS ord
    FROM (SELECT nextval('holdfast.event_seq') AS seq, clock_timestamp() AS at OFFSET 0) n
), j AS (
    INSERT INTO holdfast.job (id, created_at, queued_seq, lane, kind, prio, payload)
    SELECT u.id, q.at, q.seq, u.lane, u.kind, u.prio, u.payload
    FROM q, unnest($1::/*id*/bigint[], $2::int[], $3::smallint[], $4::int[], $5::bytea[])
        AS u(id, lane, prio, kind, payload)
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, attempt, prio, failures, crashes)
    SELECT q.ord, u.id, u.lane, 0, u.prio, 0, 0
    FROM q, unnest($1::/*id*/bigint[], $2::int[], $3::smallint[]) AS u(id, lane, prio)
)
INSERT INTO holdfast.event (seq, at, kind, job_ids)
SELECT q.seq, q.at, 1, $1::/*id*/bigint[] FROM q
