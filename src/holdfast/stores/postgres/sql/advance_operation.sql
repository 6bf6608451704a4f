-- advance_operation: only by the worker that took it last, while it runs. The epoch is the fence.
-- $1 id, $2 epoch, $3 cursor, $4 done, $5 refused, $6 for how long
UPDATE holdfast.operation
   SET cursor = $3::text, done = done + $4::bigint, refused = refused + $5::bigint,
       taken_until = holdfast.clock() + $6::interval, updated_at = holdfast.clock()
 WHERE id = $1::text AND epoch = $2::bigint AND progress = 'running'
RETURNING id
