-- Which of these lanes have ready jobs, and between which priorities: two index lookups for each.
SELECT lane, first, last
  FROM (SELECT l.value AS lane,
               (SELECT prio FROM holdfast_job WHERE phase = 0 AND lane = l.value ORDER BY prio LIMIT 1) AS first,
               (SELECT prio FROM holdfast_job WHERE phase = 0 AND lane = l.value ORDER BY prio DESC LIMIT 1) AS last
          FROM json_each(:lanes) l)
 WHERE first IS NOT NULL
