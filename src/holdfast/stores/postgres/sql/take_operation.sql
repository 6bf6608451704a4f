-- take_operation: of those that run and that nobody works on, the one that has waited longest. $1 for how long
UPDATE holdfast.operation
   SET epoch = epoch + 1, taken_until = holdfast.clock() + $1::interval, updated_at = holdfast.clock()
 WHERE number = (SELECT number FROM holdfast.operation WHERE progress = 'running' AND taken_until <= holdfast.clock()
                  ORDER BY updated_at, number LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING *
