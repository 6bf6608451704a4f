-- The events of one job, found by the pointers of its rows. $1 id
WITH p AS (
    SELECT queued_seq AS seq FROM holdfast.job WHERE id = $1::uuid
    UNION SELECT claim_seq FROM holdfast.lease WHERE job_id = $1::uuid
    UNION SELECT unnest(ARRAY[claim_seq, settle_seq]) FROM holdfast.done WHERE job_id = $1::uuid
    UNION SELECT unnest(ARRAY[claim_seq, settle_seq]) FROM holdfast.attempt WHERE job_id = $1::uuid
    UNION SELECT seq FROM holdfast.event WHERE job_id = $1::uuid
)
SELECT e.seq, e.at, e.kind, e.job_ids, e.epochs, e.attempts, e.durations, e.metas, s.worker
  FROM p JOIN holdfast.event e ON e.seq = p.seq LEFT JOIN holdfast.session s ON s.id = e.session_id
 ORDER BY e.seq
