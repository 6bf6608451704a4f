-- All events of one job, by pointers, without an index on job ids. $1 id. At most one row per event; each is cut down
-- to this job by array_position. Events of people's moves (cancel, redrive ...) are single and rare: production gives
-- `event` a nullable job_id with a partial index for those kinds only.
WITH p AS (
    SELECT queued_seq AS seq FROM holdfast.job WHERE id = $1::/*id*/bigint
    UNION SELECT claim_seq FROM holdfast.lease WHERE job_id = $1::/*id*/bigint
    UNION SELECT unnest(ARRAY[claim_seq, done_seq]) FROM holdfast.done WHERE job_id = $1::/*id*/bigint
    UNION SELECT unnest(ARRAY[claim_seq, settle_seq]) FROM holdfast.attempt WHERE job_id = $1::/*id*/bigint
)
SELECT e.seq, e.at, e.kind, e.epochs[x.i] AS epoch, e.attempts[x.i] AS attempt
FROM p JOIN holdfast.event e USING (seq)
CROSS JOIN LATERAL (SELECT array_position(e.job_ids, $1::/*id*/bigint) AS i) x
WHERE x.i IS NOT NULL
ORDER BY e.seq
