-- Record an artifact before it is stored outside: under the current lease, or under one that a deadline or a person has ended, because its
-- result may still arrive late.
INSERT INTO holdfast_artifact (job, epoch, reference, name, bytes, at)
SELECT j.id, :epoch, :reference, :called, :bytes, :now
  FROM holdfast_job j
 WHERE j.uid = :uid
   AND ((j.epoch = :epoch AND j.phase = 2)
        OR EXISTS (SELECT 1 FROM holdfast_attempt a
                    WHERE a.job = j.id AND a.epoch = :epoch AND a.outcome IN ('timed_out', 'cancelled')))
    ON CONFLICT (job, epoch, reference) DO UPDATE SET bytes = excluded.bytes, at = excluded.at
