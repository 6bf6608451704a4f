-- Which finished jobs were kept long enough: six ranges of the index. A dead letter is kept until a person redrives or discards it.
SELECT j.id, j.uid FROM holdfast_job j JOIN holdfast_lane l ON l.id = j.lane
 WHERE j.phase IN (3, 4, 5) AND j.phase >= 3 AND (j.expired_at IS NULL) IN (0, 1) AND j.finished_at <= :before AND (:task IS NULL OR l.task = :task)
   AND l.task NOT IN (SELECT value FROM json_each(:but))
   AND NOT EXISTS (SELECT 1 FROM holdfast_dead_letter d WHERE d.job = j.id)
   AND NOT EXISTS (SELECT 1 FROM holdfast_artifact a WHERE a.job = j.id) -- they are deleted first
 LIMIT :limit
