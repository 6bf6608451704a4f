-- $1 ids, $2 epochs. Epochs are unique per dispatch, so the two arrays need not be joined pairwise.
-- Rows not returned lost their lease (or were completed by an earlier send: look in done by id and epoch).
WITH d AS (
    DELETE FROM holdfast.lease WHERE job_id = ANY ($1::/*id*/bigint[]) AND epoch = ANY ($2::bigint[])
    RETURNING job_id, epoch, session_id, claim_seq, claimed_at, attempt
), q AS MATERIALIZED (
    SELECT nextval('holdfast.event_seq') AS seq, clock_timestamp() AS at FROM (SELECT 1 FROM d LIMIT 1) one
), f AS (
    INSERT INTO holdfast.done (job_id, epoch, session_id, claim_seq, done_seq, started_at, finished_at, attempt)
    SELECT d.job_id, d.epoch, d.session_id, d.claim_seq, q.seq, d.claimed_at, q.at, d.attempt FROM d, q
), e AS (
    INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts)
    SELECT q.seq, q.at, 3, a.ids, a.epochs, a.attempts
    FROM q, (SELECT array_agg(job_id) AS ids, array_agg(epoch) AS epochs, array_agg(attempt) AS attempts FROM d) a
)
SELECT job_id FROM d
