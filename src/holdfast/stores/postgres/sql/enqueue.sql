-- enqueue: → queued, for jobs of one spec that are due now and have no key. A known id raises unique_violation, and the caller
-- then sends `enqueue_again`: ON CONFLICT in every enqueue would cost 50 B of WAL a row.
-- ord is computed once, because numeric arithmetic for each row is expensive.
-- $1 ids, $2 payloads, $3 lane. {$…} is a parameter by its name, with its cast; {spec …} are the columns of
-- stores/columns.py and their parameters. `python -m tools.sql postgres enqueue` prints the whole text.
WITH q AS MATERIALIZED (
    SELECT n.seq, n.at, holdfast.place(n.at) AS ord, coalesce({$deadline_at}, n.at + {$sla}) AS deadline_at
      FROM (SELECT holdfast.event_number() AS seq, holdfast.clock() AS at OFFSET 0) n
), j AS (
    INSERT INTO holdfast.job (id, created_at, queued_seq, lane, payload, deadline_at, {spec columns})
    SELECT u.id, q.at, q.seq, $3::int, u.payload, q.deadline_at, {spec values}
      FROM q, unnest($1::uuid[], $2::text[]) AS u(id, payload)
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, deadline_at, key)
    SELECT q.ord, u.id, $3::int, {$prio}, 0, 0, 1, q.deadline_at, {$key} FROM q, unnest($1::uuid[]) AS u(id)
)
INSERT INTO holdfast.event (seq, at, kind, job_ids, lane) SELECT q.seq, q.at, 1, $1::uuid[], $3::int FROM q
