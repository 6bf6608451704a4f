-- $1 session, $2 lanes int[], $3 prios smallint[], $4 cursor ords bigint[], $5 cursor ids, $6 limit, $7 run seconds
-- One probe per (lane, prio) in the order of preference; the lateral scans stop as soon as the outer LIMIT is full.
-- The equality on lane and prio makes (ord, id) > cursor an index boundary: dead rows before it are never visited.
WITH s AS MATERIALIZED (
    -- An expired session cannot claim.
    SELECT id FROM holdfast.session WHERE id = $1::bigint AND expires_at > clock_timestamp()
), pick AS MATERIALIZED (
    SELECT r.t
    FROM s, unnest($2::int[], $3::smallint[], $4::bigint[], $5::/*id*/bigint[]) AS p(lane, prio, c_ord, c_id)
    CROSS JOIN LATERAL (
        SELECT x.ctid AS t
        FROM holdfast.ready x
        WHERE x.lane = p.lane AND x.prio = p.prio AND (x.ord, x.id) > (p.c_ord, p.c_id)
        ORDER BY x.ord, x.id
        LIMIT $6::int
        FOR UPDATE SKIP LOCKED
    ) r
    LIMIT $6::int
), q AS MATERIALIZED (
    -- Only when something was picked: an empty poll must not write.
    SELECT nextval('holdfast.event_seq') AS seq, clock_timestamp() AS at FROM (SELECT 1 FROM pick LIMIT 1) one
), taken AS (
    -- TID scan. Joining by key would rescan the prefix of the lane.
    DELETE FROM holdfast.ready WHERE ctid = ANY (ARRAY(SELECT t FROM pick))
    RETURNING ord, id, lane, attempt, prio, failures, crashes
), l AS (
    INSERT INTO holdfast.lease (job_id, epoch, session_id, claim_seq, ord, claimed_at, run_until, lane, attempt, prio,
        failures, crashes)
    SELECT t.id, nextval('holdfast.epoch'), $1::bigint, q.seq, t.ord, q.at, q.at + make_interval(secs => $7::float8),
        t.lane, t.attempt + 1, t.prio, t.failures, t.crashes
    FROM taken t, q
    RETURNING job_id, epoch, attempt, lane, prio, ord
), e AS (
    INSERT INTO holdfast.event (seq, at, session_id, kind, job_ids, epochs, attempts)
    SELECT q.seq, q.at, $1::bigint, 2, a.ids, a.epochs, a.attempts
    FROM q, (SELECT array_agg(job_id) AS ids, array_agg(epoch) AS epochs, array_agg(attempt) AS attempts FROM l) a
)
-- OFFSET 0 keeps the planner from turning this into a hash join over job.
SELECT l.job_id, l.epoch, l.attempt, l.ord, j.kind, j.payload
FROM l CROSS JOIN LATERAL (SELECT kind, payload FROM holdfast.job WHERE id = l.job_id OFFSET 0) j
