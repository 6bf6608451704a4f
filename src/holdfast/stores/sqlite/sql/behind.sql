-- `head` without jobs whose key has no free slot (:full) and without jobs that were picked already.
SELECT json_group_array(json_array(prio, ord, id, key))
  FROM (SELECT prio, ord, id, key FROM holdfast_job
         WHERE phase = 0 AND lane = :lane AND prio BETWEEN :first AND :last AND ord < :before
           AND (key IS NULL OR key NOT IN (SELECT value FROM json_each(:full)))
           AND id NOT IN (SELECT value FROM json_each(:picked))
         ORDER BY prio, ord, id LIMIT :limit)
