WITH q AS MATERIALIZED (SELECT n.at, (extract(epoch FROM n.at) * 1000000)::bigint AS ord
    FROM (SELECT clock_timestamp() AS at OFFSET 0) n), j AS (
    INSERT INTO holdfast.job (id, ord, created_at, lane, kind, prio, payload)
    SELECT u.id, q.ord, q.at, $2::int, $4::int, $3::smallint, u.payload
    FROM q, unnest($1::bigint[], $5::bytea[]) AS u(id, payload))
INSERT INTO holdfast.event (job_id, at, kind) SELECT u.id, q.at, 1 FROM q, unnest($1::bigint[]) AS u(id)
