-- purge: complete → complete, expired. phase >= 3 is what the index is of: SQLite does not conclude it from phase = 3.
UPDATE holdfast_job SET result = NULL, expired_at = :now, updated_at = :now
 WHERE id IN (SELECT j.id FROM holdfast_job j JOIN holdfast_lane l ON l.id = j.lane
               WHERE {j.phase may purge} AND j.phase >= 3 AND (j.expired_at IS NULL) = 1 AND j.finished_at <= :before AND (:task IS NULL OR l.task = :task)
                 AND l.task NOT IN (SELECT value FROM json_each(:but))
                 AND NOT EXISTS (SELECT 1 FROM holdfast_artifact a WHERE a.job = j.id) -- they are deleted first
               LIMIT :limit)
RETURNING uid, epoch, attempt
