-- advance_operation: only by the worker that took it last, while it runs. The epoch is the fence.
UPDATE holdfast_operation
   SET cursor = :cursor, done = done + :done, refused = refused + :refused, taken_until = :until, updated_at = :now
 WHERE id = :id AND epoch = :epoch AND progress = 'running'
