-- The job that stands in for a new one with the same dedupe key: unfinished, or complete and not expired (E36).
-- $1 digest
SELECT d.job_id
  FROM holdfast.dedupe d JOIN holdfast.job j ON j.id = d.job_id LEFT JOIN holdfast.done f ON f.job_id = d.job_id
 WHERE d.digest = $1::bytea
   AND (f.job_id IS NULL
        OR (f.state = 3 AND f.expired_at IS NULL AND (j.dedupe_for IS NULL OR f.finished_at + j.dedupe_for > holdfast.clock())))
