-- The next lines after (:lane, :prio) that have ready jobs, and the owner of the next job in each: one index step for each line.
WITH RECURSIVE head (id) AS (
    SELECT coalesce((SELECT id FROM holdfast_job WHERE phase = 0 AND lane = :lane AND prio > :prio ORDER BY prio, ord, id LIMIT 1),
                    (SELECT id FROM holdfast_job WHERE phase = 0 AND lane > :lane ORDER BY lane, prio, ord, id LIMIT 1))
    UNION ALL
    SELECT coalesce((SELECT n.id FROM holdfast_job n WHERE n.phase = 0 AND n.lane = j.lane AND n.prio > j.prio
                      ORDER BY n.prio, n.ord, n.id LIMIT 1),
                    (SELECT n.id FROM holdfast_job n WHERE n.phase = 0 AND n.lane > j.lane ORDER BY n.lane, n.prio, n.ord, n.id LIMIT 1))
      FROM head h JOIN holdfast_job j ON j.id = h.id
     LIMIT :limit)
SELECT j.lane, j.prio, j.owner FROM head h JOIN holdfast_job j ON j.id = h.id
