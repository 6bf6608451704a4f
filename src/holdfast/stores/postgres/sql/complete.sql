-- complete: processing → complete, for those whose lease is current and whose deadline has not passed.
-- $1 ids, $2 epochs, $3 results, $4 durations in ms, $5 HTTP statuses of the services (null: no handler has set one),
-- $6 how long each had been queued when it was claimed, in ms, $7 costs (null: all are 1): by place.
-- Epochs are unique, so the two ANYs need no pairing to find the lease by index; the join pairs them.
-- Returns the ids that were completed and the keys that became free.
WITH d AS (
    DELETE FROM holdfast.lease
     WHERE job_id = ANY ($1::uuid[]) AND epoch = ANY ($2::bigint[]) AND (deadline_at IS NULL OR deadline_at >= holdfast.clock())
       AND {lease may complete}
    RETURNING job_id, epoch, session_id, claim_seq, claimed_at, attempt, generation, run_at, key, lane
), q AS MATERIALIZED (
    SELECT holdfast.event_number() AS seq, holdfast.clock() AS at FROM (SELECT 1 FROM d LIMIT 1) one
), x AS MATERIALIZED (
    SELECT d.*, u.result, u.duration, u.status, u.waited, u.cost
      FROM d JOIN unnest($1::uuid[], $2::bigint[], $3::text[], $4::int[], $5::int[], $6::int[], $7::float8[])
                  AS u(id, epoch, result, duration, status, waited, cost)
        ON u.id = d.job_id AND u.epoch = d.epoch
), f AS (
    INSERT INTO holdfast.done (job_id, state, epoch, session_id, claim_seq, settle_seq, started_at, finished_at, attempt, crashes,
                               generation, run_at, result, cost)
    SELECT x.job_id, 3, x.epoch, x.session_id, x.claim_seq, q.seq, x.claimed_at, q.at, x.attempt, 0, x.generation, x.run_at, x.result, x.cost
      FROM x, q
), e AS (
    INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts, durations, metas, lane, lanes, waits)
    SELECT q.seq, q.at, 3, a.ids, a.epochs, a.attempts, a.durations, a.metas, CASE WHEN a.first = a.last THEN a.first END,
           CASE WHEN a.first < a.last THEN a.lanes END, a.waits
      FROM q, (SELECT array_agg(job_id) AS ids, array_agg(epoch) AS epochs, array_agg(attempt) AS attempts,
                      array_agg(duration) AS durations, array_agg(waited) AS waits, min(lane) AS first, max(lane) AS last,
                      array_agg(lane) AS lanes,
                      CASE WHEN $5::int[] IS NOT NULL OR $7::float8[] IS NOT NULL THEN array_agg(
                          CASE WHEN coalesce(status, cost) IS NOT NULL
                               THEN jsonb_strip_nulls(jsonb_build_object('gateway_http_status', status, 'cost', cost)) END) END AS metas
                 FROM x) a
)
SELECT job_id, epoch, key FROM x
