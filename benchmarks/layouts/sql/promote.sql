-- $1 limit. Due deferred rows go to ready, with an ord of now (they queue behind what is there).
WITH p AS MATERIALIZED (
    SELECT ctid AS t FROM holdfast.deferred WHERE run_at <= clock_timestamp()
    ORDER BY run_at, id LIMIT $1::int FOR UPDATE SKIP LOCKED
), q AS MATERIALIZED (
    SELECT n.seq, n.at, (extract(epoch FROM n.at) * 1000000)::bigint AS ord
    FROM (SELECT nextval('holdfast.event_seq') AS seq, clock_timestamp() AS at FROM (SELECT 1 FROM p LIMIT 1) one
        OFFSET 0) n
), d AS (
    DELETE FROM holdfast.deferred WHERE ctid = ANY (ARRAY(SELECT t FROM p)) RETURNING *
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, attempt, prio, failures, crashes)
    SELECT q.ord, d.id, d.lane, d.attempt, d.prio, d.failures, d.crashes
    FROM d, q
), e AS (
    INSERT INTO holdfast.event (seq, at, kind, job_ids)
    SELECT q.seq, q.at, 6, g.ids FROM q, (SELECT array_agg(id) AS ids FROM d) g
)
SELECT count(*) FROM d
