-- Store the result of a step, only under the current lease. $1 id, $2 epoch, $3 name, $4 result
INSERT INTO holdfast.step (job_id, name, result, at)
SELECT l.job_id, $3::text, $4::text, holdfast.clock() FROM holdfast.lease l WHERE l.job_id = $1::uuid AND l.epoch = $2::bigint
    ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, at = excluded.at
RETURNING name
