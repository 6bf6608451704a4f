-- replay_messages: published or parked -> waiting. $1 topic, $2 first number, $3 last number, $4 limit
SELECT done, largest FROM holdfast.replay_messages($1::text, $2::bigint, $3::bigint, $4::int)
