-- What a worker needs to know of the jobs it just claimed, in the order it claimed them.
SELECT json_group_array(json_array(j.uid, j.lane, j.payload, j.attempt, j.max_attempts, j.crashes, j.generation, j.owner,
                                   j.key, j.timeout, j.deadline_at, j.queued_at, j.start_within, j.version, j.trace, j.prio))
  FROM json_each(:ids) i JOIN holdfast_job j ON j.id = i.value
