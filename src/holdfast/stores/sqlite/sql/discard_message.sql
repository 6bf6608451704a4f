-- discard_message: a parked message is given up, by a person.
DELETE FROM holdfast_outbox WHERE id = :id AND line = 3 RETURNING topic, key, error
