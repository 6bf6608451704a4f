-- The queue position of a ready job, counted from 1; 0 for any other job.
SELECT count(*) FROM holdfast_job o JOIN holdfast_job j ON o.lane = j.lane AND o.phase = 0 AND (o.prio, o.ord, o.id) <= (j.prio, j.ord, j.id)
 WHERE j.uid = :uid
