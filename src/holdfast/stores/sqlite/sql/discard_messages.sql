-- discard_messages: a parked message is given up.
DELETE FROM holdfast_outbox WHERE id = :id AND line = 3 RETURNING topic, key, error
