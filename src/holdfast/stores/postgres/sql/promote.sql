-- promote: make deferred jobs ready that are due, behind those in line. Jobs with a key wait for `grant`. While maintenance task
-- `delayed` is paused, no job becomes ready; while `retries` is paused, none that was attempted before. Returns how many became ready,
-- the time until the next is due, and whether `grant` has something to do. $1 limit
WITH h AS MATERIALIZED (
    SELECT CASE WHEN holdfast.paused('delayed') THEN '-infinity' ELSE holdfast.clock() END AS due, holdfast.paused('retries') AS no_retries
), p AS MATERIALIZED (
    SELECT ctid AS t FROM holdfast.deferred
     -- Not "key IS NULL": until the table is analysed the planner believes that of one row in two hundred, and sorts all who are due.
     WHERE run_at <= (SELECT due FROM h) AND num_nulls(key) > 0 AND (attempt = 0 OR NOT (SELECT no_retries FROM h))
     ORDER BY run_at, id LIMIT $1::int FOR UPDATE SKIP LOCKED
), q AS MATERIALIZED (
    SELECT holdfast.place(holdfast.clock()) AS ord
), d AS (
    DELETE FROM holdfast.deferred WHERE ctid = ANY (ARRAY(SELECT t FROM p)) RETURNING *
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, run_at, deadline_at, key)
    SELECT q.ord, d.id, d.lane, d.prio, d.attempt, d.crashes, d.generation, d.run_at, d.deadline_at, d.key FROM d, q
)
SELECT (SELECT count(*) FROM d),
       (SELECT run_at - holdfast.clock() FROM holdfast.deferred WHERE run_at > (SELECT holdfast.clock()) AND isfinite(run_at) ORDER BY run_at LIMIT 1),
       EXISTS (SELECT FROM holdfast.key_slot)
       OR (SELECT key FROM holdfast.deferred WHERE key IS NOT NULL ORDER BY key LIMIT 1) IS NOT NULL
