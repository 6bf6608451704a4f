-- The unfinished jobs whose deadline has passed, in the order of their deadlines. The condition has the form of the partial index.
SELECT uid FROM holdfast_job
 WHERE deadline_at IS NOT NULL AND {phase may time_out} AND deadline_at < :now
 ORDER BY deadline_at, id LIMIT :limit OFFSET :skip
