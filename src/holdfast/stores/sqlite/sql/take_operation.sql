-- take_operation: of those that run and that nobody works on, the one that has waited longest.
UPDATE holdfast_operation SET epoch = epoch + 1, taken_until = :until, updated_at = :now
 WHERE number = (SELECT number FROM holdfast_operation WHERE progress = 'running' AND taken_until <= :now
                  ORDER BY updated_at, number LIMIT 1)
RETURNING id
