-- The place of a job in its line, counted from 1.
SELECT count(*) FROM holdfast_job o JOIN holdfast_job j ON o.lane = j.lane AND o.phase = 0 AND (o.prio, o.ord, o.id) <= (j.prio, j.ord, j.id)
 WHERE j.id = :id
