-- Whose deadline has passed, wherever they are. $1 limit, $2 how many of the earliest are passed over
SELECT id FROM (
    (SELECT id, deadline_at FROM holdfast.ready WHERE deadline_at < holdfast.clock() ORDER BY deadline_at, id LIMIT $1::int + $2::int)
    UNION ALL
    (SELECT id, deadline_at FROM holdfast.deferred WHERE deadline_at < holdfast.clock() ORDER BY deadline_at, id LIMIT $1::int + $2::int)
    UNION ALL
    (SELECT job_id, deadline_at FROM holdfast.lease WHERE deadline_at < holdfast.clock() ORDER BY deadline_at, job_id LIMIT $1::int + $2::int)
) late ORDER BY deadline_at, id LIMIT $1::int OFFSET $2::int
