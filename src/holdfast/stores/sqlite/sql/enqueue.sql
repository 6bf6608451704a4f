-- enqueue: → queued, for jobs that share one spec. A uid that is known already is left as it is: the caller
-- sends again what it had no answer to. In a fair line they stand a step apart.
INSERT INTO holdfast_job (uid, payload, lane, phase, prio, ord, run_at, created_at, queued_at, updated_at, max_attempts, max_crashes,
                 version, queued_event, owner, key, tags, trace, timeout, sla, start_within, dedupe, dedupe_for, deadline_at, key_slots)
SELECT value ->> 0, value ->> 1, :lane, :phase, :prio, :ord + key * :step, :run_at, :now, :now, :now, :max_attempts,
       :max_crashes, :version, :seq, :owner, :key, :tags, :trace, :timeout, :sla, :start_within, :dedupe, :dedupe_for,
       :deadline_at, :key_slots
  FROM json_each(:jobs) WHERE true
    ON CONFLICT (uid) DO NOTHING
