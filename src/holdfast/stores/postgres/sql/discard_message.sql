-- discard_message: a parked message is given up, by a person. Its topic is locked. $1 id
DELETE FROM holdfast.outbox WHERE id = $1::text AND line = 3 RETURNING topic, key, error
