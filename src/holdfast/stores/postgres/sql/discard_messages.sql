-- discard_messages: delete parked messages. Their topics are locked. $1 ids
DELETE FROM holdfast.outbox WHERE id = ANY ($1::text[]) AND line = 3 RETURNING id, topic, key, error
