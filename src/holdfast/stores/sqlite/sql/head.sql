-- The first jobs of one line between two priorities, in order. It is one row of JSON, so that the interpreter is entered once for the
-- whole batch. :before leaves out jobs of a fair line that are not placed yet.
SELECT json_group_array(json_array(prio, ord, id, key))
  FROM (SELECT prio, ord, id, key FROM holdfast_job
         WHERE phase = 0 AND lane = :lane AND prio BETWEEN :first AND :last AND ord < :before
         ORDER BY prio, ord, id LIMIT :limit)
