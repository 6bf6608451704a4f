-- The place of a job in its line, counted from 1. A job that waits for its key has 1, too. $1 id
SELECT greatest(1, count(*))
  FROM holdfast.ready o JOIN holdfast.ready r ON o.lane = r.lane AND (o.prio, o.ord, o.id) <= (r.prio, r.ord, r.id)
 WHERE r.id = $1::uuid
