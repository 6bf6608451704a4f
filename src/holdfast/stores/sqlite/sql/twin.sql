-- The job that stands in for a new one with the same dedupe key: unfinished, or complete and not expired (E36).
SELECT j.uid
  FROM holdfast_dedupe d JOIN holdfast_job j ON j.id = d.job
 WHERE d.digest = :digest
   AND (j.phase <= 2 OR (j.phase = 3 AND j.expired_at IS NULL AND (j.dedupe_for IS NULL OR j.finished_at + j.dedupe_for > :now)))
