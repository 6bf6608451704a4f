-- enqueue for everything but the plain first send: ids that may be known already, jobs due later, jobs with a key.
-- Inserts what is missing and records no second event for what is there. Returns the ids that were new.
-- $1 … $17 as enqueue.sql; $18 delay, $19 run_at: where the job is due later; a job with a key waits for its turn, and
-- $20 how many jobs of that key may run at a time (null: one).
WITH q AS MATERIALIZED (
    SELECT n.seq, n.at, holdfast.place(n.at) AS ord, coalesce($17::timestamptz, n.at + $13::interval) AS deadline_at,
           CASE WHEN coalesce($19::timestamptz, n.at + $18::interval) > n.at THEN coalesce($19::timestamptz, n.at + $18::interval)
                WHEN $9::text IS NOT NULL THEN 'infinity' END AS run_at
      FROM (SELECT holdfast.event_number() AS seq, holdfast.clock() AS at OFFSET 0) n
), j AS (
    INSERT INTO holdfast.job (id, created_at, queued_seq, lane, prio, max_attempts, max_crashes, version, payload, owner, key, tags,
                              trace, timeout, sla, start_within, dedupe, dedupe_for, deadline_at, key_slots)
    SELECT u.id, q.at, q.seq, $3::int, $4::smallint, $5::smallint, $6::smallint, $7::smallint, u.payload, $8::text, $9::text,
           $10::text[], $11::text, $12::interval, $13::interval, $14::interval, $15::bytea, $16::interval, q.deadline_at, $20::smallint
      FROM q, unnest($1::uuid[], $2::text[]) AS u(id, payload)
        ON CONFLICT (id) DO NOTHING
    RETURNING id
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, deadline_at, key)
    SELECT q.ord, j.id, $3::int, $4::smallint, 0, 0, 1, q.deadline_at, $9::text FROM q, j WHERE q.run_at IS NULL
), d AS (
    INSERT INTO holdfast.deferred (run_at, id, lane, prio, attempt, crashes, generation, deadline_at, key)
    SELECT q.run_at, j.id, $3::int, $4::smallint, 0, 0, 1, q.deadline_at, $9::text FROM q, j WHERE q.run_at IS NOT NULL
), e AS (
    INSERT INTO holdfast.event (seq, at, kind, job_ids)
    SELECT q.seq, q.at, 1, array_agg(j.id) FROM q, j GROUP BY q.seq, q.at
)
SELECT id FROM j
