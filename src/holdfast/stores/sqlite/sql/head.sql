-- The head of one line, in order; one row of JSON, so that the interpreter is entered once for the whole batch.
SELECT json_group_array(json_array(prio, ord, id, key))
  FROM (SELECT prio, ord, id, key FROM holdfast_job WHERE phase = 0 AND lane = :lane ORDER BY prio, ord, id LIMIT :limit OFFSET :offset)
