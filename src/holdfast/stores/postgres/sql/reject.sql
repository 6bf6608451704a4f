-- reject: → failed at once, with a record: attempt 0, no dead letter. $1 id, $2 payload, $3 lane, $4 owner, $5 code, $6 message, $7 meta
WITH q AS MATERIALIZED (
    SELECT holdfast.event_number() AS seq, holdfast.clock() AS at
), j AS (
    INSERT INTO holdfast.job (id, created_at, queued_seq, lane, prio, max_attempts, max_crashes, version, payload, owner)
    SELECT $1::uuid, q.at, q.seq, $3::int, 0, 1, 1, 1, $2::text, $4::text FROM q
        ON CONFLICT (id) DO NOTHING
    RETURNING id
), f AS (
    INSERT INTO holdfast.done (job_id, state, epoch, finished_at, attempt, crashes, generation, error_code, error_message)
    SELECT j.id, 4, 0, q.at, 0, 0, 1, $5::text, $6::text FROM j, q
)
INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts, metas, lane)
SELECT q.seq, q.at, 13, ARRAY[j.id], ARRAY[0::bigint], ARRAY[0::smallint], ARRAY[$7::jsonb], $3::int FROM j, q
RETURNING seq
