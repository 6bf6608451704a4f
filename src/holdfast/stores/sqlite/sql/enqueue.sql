-- enqueue: → queued, for jobs of one spec. A known uid is ignored, because a caller without an answer sends its jobs again.
-- In a fair line the jobs are :step apart.
-- {spec …} are the columns of stores/columns.py and their parameters. A single job is inserted by intake.py.
INSERT INTO holdfast_job (uid, payload, ord, lane, phase, run_at, created_at, queued_at, updated_at, queued_event, deadline_at,
                          {spec columns})
SELECT value ->> 0, value ->> 1, :first + key * :step, :lane, :phase, :run_at, :created_at, :queued_at, :updated_at, :queued_event, :deadline_at,
       {spec values}
  FROM json_each(:jobs) WHERE true
    ON CONFLICT (uid) DO NOTHING
