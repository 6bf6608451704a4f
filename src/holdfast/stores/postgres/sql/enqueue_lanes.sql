-- enqueue: → queued, for jobs that share one spec but for their lanes, in the order of those. See `enqueue`.
-- $1 ids, $2 payloads, $3 lanes, $4 … $17 as there
WITH q AS MATERIALIZED (
    SELECT n.seq, n.at, holdfast.place(n.at) AS ord, coalesce($17::timestamptz, n.at + $13::interval) AS deadline_at
      FROM (SELECT holdfast.event_number() AS seq, holdfast.clock() AS at OFFSET 0) n
), j AS (
    INSERT INTO holdfast.job (id, created_at, queued_seq, lane, prio, max_attempts, max_crashes, version, payload, owner, key, tags,
                              trace, timeout, sla, start_within, dedupe, dedupe_for, deadline_at)
    SELECT u.id, q.at, q.seq, u.lane, $4::smallint, $5::smallint, $6::smallint, $7::smallint, u.payload, $8::text, $9::text,
           $10::text[], $11::text, $12::interval, $13::interval, $14::interval, $15::bytea, $16::interval, q.deadline_at
      FROM q, unnest($1::uuid[], $2::text[], $3::int[]) AS u(id, payload, lane)
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, deadline_at, key)
    SELECT q.ord, u.id, u.lane, $4::smallint, 0, 0, 1, q.deadline_at, $9::text FROM q, unnest($1::uuid[], $3::int[]) AS u(id, lane)
)
INSERT INTO holdfast.event (seq, at, kind, job_ids) SELECT q.seq, q.at, 1, $1::uuid[] FROM q
