-- The unfinished jobs whose deadline has passed, in the order of their deadlines. $1 limit, $2 offset
SELECT id FROM (
    (SELECT id, deadline_at FROM holdfast.ready WHERE {ready may time_out} AND deadline_at < holdfast.clock() ORDER BY deadline_at, id LIMIT $1::int + $2::int)
    UNION ALL
    (SELECT id, deadline_at FROM holdfast.deferred WHERE {deferred may time_out} AND deadline_at < holdfast.clock() ORDER BY deadline_at, id LIMIT $1::int + $2::int)
    UNION ALL
    (SELECT job_id, deadline_at FROM holdfast.lease WHERE {lease may time_out} AND deadline_at < holdfast.clock() ORDER BY deadline_at, job_id LIMIT $1::int + $2::int)
) late ORDER BY deadline_at, id LIMIT $1::int OFFSET $2::int
