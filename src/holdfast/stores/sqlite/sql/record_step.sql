-- Store a step's result, only under the current lease.
INSERT OR REPLACE INTO holdfast_step (job, name, result, at)
SELECT id, :name, :result, :now FROM holdfast_job WHERE uid = :uid AND epoch = :epoch AND phase = 2
