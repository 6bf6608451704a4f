-- discard_messages: delete a parked message.
DELETE FROM holdfast_outbox WHERE id = :id AND line = 3 RETURNING topic, key, error
