WITH s AS MATERIALIZED (SELECT id FROM holdfast.session WHERE id = $1::bigint AND expires_at > clock_timestamp()),
pick AS MATERIALIZED (SELECT r.t FROM s, unnest($2::int[], $3::smallint[], $4::bigint[], $5::bigint[])
        AS p(lane, prio, c_ord, c_id)
    CROSS JOIN LATERAL (SELECT x.ctid AS t FROM holdfast.ready x WHERE x.lane = p.lane AND x.prio = p.prio
        AND (x.ord, x.id) > (p.c_ord, p.c_id) ORDER BY x.ord, x.id LIMIT $6::int FOR UPDATE SKIP LOCKED) r
    LIMIT $6::int),
q AS MATERIALIZED (SELECT clock_timestamp() AS at),
taken AS (DELETE FROM holdfast.ready WHERE ctid = ANY (ARRAY(SELECT t FROM pick)) RETURNING *),
l AS (INSERT INTO holdfast.lease (job_id, epoch, session_id, ord, claimed_at, run_until, lane, attempt, prio, failures,
        crashes)
    SELECT t.id, nextval('holdfast.epoch'), $1::bigint, t.ord, q.at, q.at + make_interval(secs => $7::float8), t.lane,
        t.attempt + 1, t.prio, t.failures, t.crashes FROM taken t, q
    RETURNING job_id, epoch, attempt, ord, claimed_at),
e AS (INSERT INTO holdfast.event (job_id, epoch, at, attempt, kind)
    SELECT job_id, epoch, claimed_at, attempt, 2 FROM l)
SELECT l.job_id, l.epoch, l.attempt, l.ord, j.kind, j.payload
FROM l CROSS JOIN LATERAL (SELECT kind, payload FROM holdfast.job WHERE id = l.job_id OFFSET 0) j
