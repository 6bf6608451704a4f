-- park_message: waiting -> parked, by a person.
UPDATE holdfast_outbox SET line = 3, not_before = NULL, settled_at = :now, error = :reason WHERE id = :id AND line < 3
RETURNING topic, key
