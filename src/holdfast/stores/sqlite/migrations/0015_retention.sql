-- Retention finds the results that it has not removed yet, without walking over those that it has.
DROP INDEX holdfast_job_ended;
CREATE INDEX holdfast_job_ended ON holdfast_job (phase, expired_at IS NULL, finished_at) WHERE phase >= 3;

-- A purged job leaves no dedupe key behind.
CREATE INDEX holdfast_dedupe_job ON holdfast_dedupe (job);
