-- enqueue for all other jobs: with ids that may be known, due later, or with a key.
-- Inserts the jobs whose ids are not known, and records an event for these only. Returns their ids.
-- The parameters are those of `enqueue`, and {$delay} or {$run_at} of jobs that are due later. A job with a key waits for its turn.
WITH q AS MATERIALIZED (
    SELECT n.seq, n.at, holdfast.place(n.at) AS ord, coalesce({$deadline_at}, n.at + {$sla}) AS deadline_at,
           CASE WHEN coalesce({$run_at}, n.at + {$delay}) > n.at THEN coalesce({$run_at}, n.at + {$delay})
                WHEN {$key} IS NOT NULL THEN 'infinity' END AS run_at
      FROM (SELECT holdfast.event_number() AS seq, holdfast.clock() AS at OFFSET 0) n
), j AS (
    INSERT INTO holdfast.job (id, created_at, queued_seq, lane, payload, deadline_at, {spec columns})
    SELECT u.id, q.at, q.seq, $3::int, u.payload, q.deadline_at, {spec values}
      FROM q, unnest($1::uuid[], $2::text[]) AS u(id, payload)
        ON CONFLICT (id) DO NOTHING
    RETURNING id
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, deadline_at, key)
    SELECT q.ord, j.id, $3::int, {$prio}, 0, 0, 1, q.deadline_at, {$key} FROM q, j WHERE q.run_at IS NULL
), d AS (
    INSERT INTO holdfast.deferred (run_at, id, lane, prio, attempt, crashes, generation, deadline_at, key)
    SELECT q.run_at, j.id, $3::int, {$prio}, 0, 0, 1, q.deadline_at, {$key} FROM q, j WHERE q.run_at IS NOT NULL
), e AS (
    INSERT INTO holdfast.event (seq, at, kind, job_ids, lane)
    SELECT q.seq, q.at, 1, array_agg(j.id), $3::int FROM q, j GROUP BY q.seq, q.at
)
SELECT id FROM j
