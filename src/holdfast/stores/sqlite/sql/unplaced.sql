-- The priorities of a fair lane that have jobs which are not placed yet: the scan steps from one to the next by the index.
WITH RECURSIVE line (prio) AS (
    SELECT (SELECT prio FROM holdfast_job WHERE phase = 0 AND lane = :lane ORDER BY prio LIMIT 1)
    UNION ALL
    SELECT (SELECT prio FROM holdfast_job WHERE phase = 0 AND lane = :lane AND prio > line.prio ORDER BY prio LIMIT 1)
      FROM line WHERE prio IS NOT NULL
     LIMIT :most)
SELECT prio FROM line
 WHERE EXISTS (SELECT 1 FROM holdfast_job j WHERE j.phase = 0 AND j.lane = :lane AND j.prio = line.prio AND j.ord >= :unplaced)
