-- enqueue: → queued, for jobs that share one spec. A uid that is known already is left as it is: the caller
-- sends again what it had no answer to. In a fair line they stand a step apart. A lone job goes another way, see intake.py.
INSERT INTO holdfast_job (uid, payload, ord, lane, phase, prio, run_at, created_at, queued_at, updated_at, queued_event,
                 max_attempts, max_crashes, version, owner, key, key_slots, tags, trace, timeout, sla, start_within,
                 dedupe, dedupe_for, deadline_at)
SELECT value ->> 0, value ->> 1, :first + key * :step, :lane, :phase, :prio, :run_at, :created_at, :queued_at, :updated_at, :queued_event,
       :max_attempts, :max_crashes, :version, :owner, :key, :key_slots, :tags, :trace, :timeout, :sla, :start_within,
       :dedupe, :dedupe_for, :deadline_at
  FROM json_each(:jobs) WHERE true
    ON CONFLICT (uid) DO NOTHING
