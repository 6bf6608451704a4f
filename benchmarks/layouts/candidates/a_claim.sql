-- By ctid: `id = ANY() AND state = 0` makes the planner AND in the whole partial index (BitmapAnd).
WITH s AS MATERIALIZED (SELECT id FROM holdfast.session WHERE id = $1::bigint AND expires_at > clock_timestamp()),
c AS MATERIALIZED (SELECT r.t FROM s, unnest($2::int[], $3::smallint[], $4::bigint[], $5::bigint[])
        AS p(lane, prio, c_ord, c_id)
    CROSS JOIN LATERAL (SELECT x.ctid AS t FROM holdfast.job x WHERE x.state = 0 AND x.lane = p.lane AND x.prio = p.prio
        AND (x.ord, x.id) > (p.c_ord, p.c_id) ORDER BY x.ord, x.id LIMIT $6::int FOR UPDATE SKIP LOCKED) r
    LIMIT $6::int),
q AS MATERIALIZED (SELECT clock_timestamp() AS at),
u AS (UPDATE holdfast.job j SET state = 2, attempt = j.attempt + 1, epoch = nextval('holdfast.epoch'), session_id = $1,
        claimed_at = q.at, run_until = q.at + make_interval(secs => $7::float8)
    FROM q WHERE j.ctid = ANY (ARRAY(SELECT t FROM c))
    RETURNING j.id, j.epoch, j.attempt, j.ord, j.kind, j.payload),
e AS (INSERT INTO holdfast.event (job_id, epoch, at, attempt, kind) SELECT u.id, u.epoch, q.at, u.attempt, 2 FROM u, q)
SELECT * FROM u
