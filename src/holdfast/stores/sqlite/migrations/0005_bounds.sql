-- Who is due: those that were tried before apart from the others, because each kind can be kept out of the line.
DROP INDEX holdfast_job_deferred;
CREATE INDEX holdfast_job_deferred ON holdfast_job (attempt > 0, run_at) WHERE phase = 1;

-- How many jobs of its key may run at a time; null: one.
ALTER TABLE holdfast_job ADD COLUMN key_slots INTEGER;

-- When the attempt under way began, by the clock that nobody can set. It is meaningless once the attempt has ended.
ALTER TABLE holdfast_job ADD COLUMN claimed_mono INTEGER;
