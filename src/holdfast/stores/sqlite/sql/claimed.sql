-- What a worker needs to know of the jobs that it has just claimed, in the order in which it claimed them. The columns of
-- {claimed …} are those of stores/columns.py; json_each is wrapped so that its own columns cannot have their names.
SELECT json_group_array(json_array(uid, lane, prio, key, payload, attempt, crashes, generation, deadline_at, queued_at, run_at,
                                   {claimed columns}))
  FROM (SELECT value AS number FROM json_each(:ids)) JOIN holdfast_job ON id = number
