-- enqueue: → queued, for jobs whose specs differ in their lanes only, in the order of the lanes. See `enqueue`.
-- $1 ids, $2 payloads, $3 lanes; the named parameters are those of `enqueue`.
WITH q AS MATERIALIZED (
    SELECT n.seq, n.at, holdfast.place(n.at) AS ord, coalesce({$deadline_at}, n.at + {$sla}) AS deadline_at
      FROM (SELECT holdfast.event_number() AS seq, holdfast.clock() AS at OFFSET 0) n
), j AS (
    INSERT INTO holdfast.job (id, created_at, queued_seq, lane, payload, deadline_at, {spec columns})
    SELECT u.id, q.at, q.seq, u.lane, u.payload, q.deadline_at, {spec values}
      FROM q, unnest($1::uuid[], $2::text[], $3::int[]) AS u(id, payload, lane)
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, deadline_at, key)
    SELECT q.ord, u.id, u.lane, {$prio}, 0, 0, 1, q.deadline_at, {$key} FROM q, unnest($1::uuid[], $3::int[]) AS u(id, lane)
)
INSERT INTO holdfast.event (seq, at, kind, job_ids, lanes) SELECT q.seq, q.at, 1, $1::uuid[], $3::int[] FROM q
