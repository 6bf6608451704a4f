-- Record an artifact before it is stored outside: under the current lease, or under one that a deadline or a person has ended, because its
-- result may still arrive late. $1 id, $2 epoch, $3 reference, $4 name, $5 bytes
INSERT INTO holdfast.artifact (job_id, epoch, reference, name, bytes, at)
SELECT $1::uuid, $2::bigint, $3::text, $4::text, $5::bigint, holdfast.clock()
 WHERE EXISTS (SELECT FROM holdfast.lease WHERE job_id = $1::uuid AND epoch = $2::bigint)
    OR EXISTS (SELECT FROM holdfast.attempt
                WHERE job_id = $1::uuid AND epoch = $2::bigint AND outcome IN ('timed_out', 'cancelled'))
    ON CONFLICT (job_id, epoch, reference) DO UPDATE SET bytes = excluded.bytes, at = excluded.at
RETURNING reference
